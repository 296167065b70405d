"""What each command does, written once over the protocols of worker/machine.py."""
