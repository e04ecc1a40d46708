"""Workers, measured from outside: real `perdure worker` processes on a store, fed, killed and left alone."""
