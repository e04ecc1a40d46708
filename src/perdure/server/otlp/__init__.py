"""Traces of runs for OpenTelemetry: spans from the journal, sent as OTLP over HTTP in JSON."""
