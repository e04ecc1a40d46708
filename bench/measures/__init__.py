"""The measurements, each a function of a folder that returns plain figures; they run in child processes."""
