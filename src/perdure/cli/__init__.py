"""The command line. `main.py` is the door; every command is loaded when it is used."""
