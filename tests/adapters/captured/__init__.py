"""Programs that know nothing of Perdure, and the provider that they call."""
