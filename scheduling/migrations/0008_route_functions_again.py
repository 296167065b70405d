from django.db import migrations

from scheduling import routefunctions


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0007_route_functions")]

    operations = [
        migrations.RunSQL(routefunctions.TAKE, migrations.RunSQL.noop),
        migrations.RunSQL(routefunctions.RELEASE, migrations.RunSQL.noop),
    ]
