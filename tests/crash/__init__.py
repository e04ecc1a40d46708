"""Real processes, really killed. README.md says what these tests have found, and what they missed."""
