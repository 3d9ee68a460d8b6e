"""Policies beyond vLLM's two, each behind the plug-in interface of :mod:`tokenyard.sched.policy`."""
