"""`agent.events`: what agents note, in order. Written with the work around it, read and followed by anybody."""
