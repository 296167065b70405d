from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # decisions are many: the indexes are built beside the traffic

    dependencies = [("scheduling", "0010_capacity")]

    operations = [
        AddIndexConcurrently(
            model_name="loadjob", index=models.Index(fields=["finished_at"], name="job_age")
        ),
        AddIndexConcurrently(
            model_name="placementdecision", index=models.Index(fields=["at"], name="decision_age")
        ),
    ]
