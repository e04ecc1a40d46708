"""The page: security without a browser, and what people see in a real one."""
