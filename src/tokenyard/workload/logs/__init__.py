"""Logs of services: what they recorded for other purposes, read as workloads."""
