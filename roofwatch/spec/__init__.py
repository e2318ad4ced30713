"""What a benchmark file says: kernels, their cases, their implementations and their cost.

A user's file and our own `kernels/` use exactly these names. The package imports nothing else of ours, so a worker that
loads somebody else's suite never meets our other packages (docs/decisions/0001-where-the-spec-lives.md).
"""

from roofwatch.spec.case import Case as Case
from roofwatch.spec.case import Direction as Direction
from roofwatch.spec.case import cases as cases
from roofwatch.spec.draws import Draws as Draws
from roofwatch.spec.errors import SpecError as SpecError
from roofwatch.spec.errors import UnsupportedError as UnsupportedError
from roofwatch.spec.implementation import Implementation as Implementation
from roofwatch.spec.implementation import Language as Language
from roofwatch.spec.input_maker import InputMaker as InputMaker
from roofwatch.spec.kernel_spec import KernelSpec as KernelSpec
from roofwatch.spec.tolerance import BASELINE_FACTOR as BASELINE_FACTOR
from roofwatch.spec.tolerance import EXACT as EXACT
from roofwatch.spec.tolerance import TOLERANCES as TOLERANCES
from roofwatch.spec.tolerance import Tolerance as Tolerance
