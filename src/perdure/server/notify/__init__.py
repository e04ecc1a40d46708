"""Tells people that a run has a question: webhooks, Slack, mail. Each notice has a link to answer."""
