"""The side of an agent that people can read: a folder of Markdown files, in step with the journal both ways.

The documents are state of the agent (namespace `perdure:workspace`), so that every edit is an entry of the journal,
whoever made it. A folder shows them. What a folder was last in step with is written in the folder itself, as digests;
the texts are in the journal. So a copied, moved or restored folder has the right base for a merge, or none.
"""
