#!/usr/bin/env python
"""`manage.py up` runs the whole cluster manager; everything else is Django's."""

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["up"]:
        # The supervisor outlives every part and must stay small: it never loads Django.
        from clustermgr.embedded.up import main as up

        sys.exit(up())
    if sys.argv[1:2] == ["fleet"]:
        # As above: what `make run` knows is in its data directory, not in our environment.
        from clustermgr.embedded.fleet import main as fleet

        sys.exit(fleet(sys.argv[2:]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clustermgr.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
