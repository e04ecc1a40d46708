"""The public API: the asyncio face, and the synchronous face that is generated from it."""
