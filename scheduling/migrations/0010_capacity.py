from django.db import migrations, models

# Moved on once: a sequence that was never asked says what it will say first
CREATE = "CREATE SEQUENCE scheduling_capacity; SELECT nextval('scheduling_capacity')"


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0009_died_at")]

    operations = [
        migrations.RunSQL(CREATE, "DROP SEQUENCE scheduling_capacity"),
        migrations.AddField(
            model_name="modelschedulingconfig",
            name="capacity_seen",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]
