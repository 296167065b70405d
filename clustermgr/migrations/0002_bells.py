from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clustermgr", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Bell",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
            ],
        ),
    ]
