from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built beside the traffic

    dependencies = [("scheduling", "0011_ages")]

    operations = [
        migrations.AddField(
            model_name="loadjob",
            name="freed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        AddIndexConcurrently(
            model_name="loadjob",
            index=models.Index(
                name="job_freed",
                fields=["freed_at"],
                condition=models.Q(freed_at__isnull=False),
            ),
        ),
    ]
