"""What may be asked of a workload, or a recording, and a deployment: functions, each with one answer."""
