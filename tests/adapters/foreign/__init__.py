"""Our classes in place of those that a framework bundles, while that framework's own tests run."""
