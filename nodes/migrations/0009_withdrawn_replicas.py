from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("nodes", "0008_ejected_replicas")]

    operations = [
        migrations.AddField(
            model_name="nodemodel",
            name="withdrawn_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
