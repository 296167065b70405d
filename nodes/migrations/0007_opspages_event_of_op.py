from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.fields.json import KT


class Migration(migrations.Migration):

    atomic = False  # events are many: the index is built beside the traffic

    dependencies = [
        ('nodes', '0006_missed_replicas'),
    ]

    operations = [
        AddIndexConcurrently(
            model_name='clusterevent',
            index=models.Index(
                KT('after__op'), condition=models.Q(('after__has_key', 'op')), name='event_of_op'
            ),
        ),
    ]
