# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.deploy.settings import (
    DeploymentSettings as DeploymentSettings,
    LaunchSettings as LaunchSettings,
    HardwareSettings as HardwareSettings,
    SchedulerSettings as SchedulerSettings,
    ParallelSettings as ParallelSettings,
    AdapterSettings as AdapterSettings,
    TransferSettings as TransferSettings,
    SpeculationSettings as SpeculationSettings,
)
