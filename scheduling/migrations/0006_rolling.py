from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0005_route_leases")]

    operations = [
        migrations.AddField(
            model_name="modelloadinfo",
            name="rolling_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="modelloadinfo",
            name="rolling_replicas",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddConstraint(
            model_name="modelloadinfo",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("rolling_replicas", 0), ("rolling_since", None)),
                    models.Q(("rolling_replicas__gt", 0), ("rolling_since__isnull", False)),
                    _connector="OR",
                ),
                name="model_rolls_some",
            ),
        ),
    ]
