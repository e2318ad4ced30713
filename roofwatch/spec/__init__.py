"""The names of a benchmark file: kernels, their cases, implementations and cost.

The package imports nothing else of the project, so a worker that loads a user's suite loads none of
it (docs/decisions/0001-where-the-spec-lives.md).
"""

from roofwatch.spec.case import Case as Case
from roofwatch.spec.case import Direction as Direction
from roofwatch.spec.case import SpecError as SpecError
from roofwatch.spec.case import UnsupportedError as UnsupportedError
from roofwatch.spec.case import cases as cases
from roofwatch.spec.input_maker import InputMaker as InputMaker
from roofwatch.spec.input_maker import Role as Role
from roofwatch.spec.kernel_spec import Implementation as Implementation
from roofwatch.spec.kernel_spec import KernelSpec as KernelSpec
from roofwatch.spec.kernel_spec import Language as Language
from roofwatch.spec.kernel_spec import jit_launch as jit_launch
from roofwatch.spec.kernel_spec import pointer as pointer
from roofwatch.spec.tolerance import BASELINE_FACTOR as BASELINE_FACTOR
from roofwatch.spec.tolerance import EXACT as EXACT
from roofwatch.spec.tolerance import TOLERANCES as TOLERANCES
from roofwatch.spec.tolerance import Tolerance as Tolerance
from roofwatch.spec.tuned import tuned as tuned
from roofwatch.spec.workload import workload as workload
