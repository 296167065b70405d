#!/usr/bin/env python
"""`manage.py up` runs the whole cluster manager; everything else is Django's."""

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["up"]:
        # The supervisor outlives every part and must stay small: it never loads Django.
        from clustermgr.embedded.up import main as up

        sys.exit(up())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clustermgr.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
