# What the package offers, in the order of the API page; the module beside it loads these names when they are asked for.
# isort: skip_file

from tokenyard.sim.replay import (
    ReplayResult as ReplayResult,
    EngineUse as EngineUse,
    replay_parallel as replay_parallel,
)
from tokenyard.sim.options import ReplayKeywords as ReplayKeywords
from tokenyard.sim.traffic import RefusedRequest as RefusedRequest, Progress as Progress, EndedBy as EndedBy
from tokenyard.sim.choices import MakesConnector as MakesConnector
from tokenyard.sim.rows.rows import ReplayRows as ReplayRows
from tokenyard.explain.table import RowTable as RowTable
from tokenyard.sim.replicas import Autoscaling as Autoscaling
from tokenyard.explain.report.report import (
    ReplicaChange as ReplicaChange,
    ReplicaFigures as ReplicaFigures,
    ClientFigures as ClientFigures,
)
from tokenyard.sim.engines import RankUse as RankUse
from tokenyard.sim.routers import (
    Router as Router,
    EngineState as EngineState,
    EngineReport as EngineReport,
    Fleet as Fleet,
)
from tokenyard.sim.fleet import EngineView as EngineView
from tokenyard.sim.named_routers import router_maker as router_maker
from tokenyard.sim.settings import ReplaySettings as ReplaySettings, KVLink as KVLink
from tokenyard.steptime.model import (
    LatencyModel as LatencyModel,
    StepShape as StepShape,
    ConstantLatency as ConstantLatency,
    Transfer as Transfer,
    TransferDirection as TransferDirection,
)
from tokenyard.steptime.own import (
    Table as Table,
    Predicted as Predicted,
    Predicts as Predicts,
    ScaledTerms as ScaledTerms,
    Noisy as Noisy,
)
from tokenyard.steptime.pace import MachineSpeed as MachineSpeed, VirtualClock as VirtualClock
from tokenyard.models.gpus import GPU as GPU
from tokenyard.models.spec import ModelSpec as ModelSpec
from tokenyard.workload.builder import Session as Session, Text as Text
from tokenyard.workload.measured import Measured as Measured, ServiceCounts as ServiceCounts
from tokenyard.workload.record import Remark as Remark, Clients as Clients
from tokenyard.workload.tokens import (
    TokenSource as TokenSource,
    StreamTokens as StreamTokens,
    Segment as Segment,
    seed_of as seed_of,
    ListedTokens as ListedTokens,
    HashedTokens as HashedTokens,
    JoinedTokens as JoinedTokens,
)
from tokenyard.explain.figures import LatencyFigures as LatencyFigures
from tokenyard.explain.slo import SLO as SLO
from tokenyard.sim.executor import SimulatedSpeculation as SimulatedSpeculation
from tokenyard.sim.transfers import (
    KVTransfer as KVTransfer,
    SimulatedConnector as SimulatedConnector,
    Link as Link,
    SimulatedTransfers as SimulatedTransfers,
)
