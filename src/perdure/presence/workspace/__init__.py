"""The workspace: a folder of Markdown files that is synced with the journal in both directions.

The documents are state of the agent (namespace `perdure:workspace`), so every edit is a journal entry. The folder
records digests of what it was last synced with; the texts are in the journal. So a copied, moved or restored folder
has the correct merge base, or none.
"""
