"""Many runs, many workers, and somebody who kills them and pulls their cables."""
