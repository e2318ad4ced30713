"""One suite during a run: its steps, the results so far, and the record made of them."""

import statistics
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from roofwatch.collector.build.requirements import read_requirements
from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.device.machine import machine_hash
from roofwatch.collector.git import list_files
from roofwatch.collector.redaction import Redaction, redact
from roofwatch.collector.runs.case_run import CaseRun, check_jobs, select, words_of
from roofwatch.collector.runs.journal import ALONE, Entry, Journal, TimedStep
from roofwatch.collector.runs.loaded_files import LoadedFiles
from roofwatch.collector.runs.machine_questions import MACHINE_TIMEOUT_S, MachineQuestions
from roofwatch.collector.runs.recorded_results import results_of
from roofwatch.collector.runs.run_plan import HARNESS_VERSION, Activity, RunPlan, SpentTime, Steps
from roofwatch.collector.runs.same_machine import require_same_machine
from roofwatch.collector.runs.static_compiler import compile_subjects, compilers, prove_subjects
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.worker_pool import OnBegin, WorkerPool
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Ceiling, Environment
from roofwatch.model.measurement import Autotuning
from roofwatch.model.metrics import format_ns
from roofwatch.model.record import PairMember, RunRecord, utc_now
from roofwatch.model.timing_method import ChosenMethod
from roofwatch.model.worker_protocol import (
    ChooseTiming,
    DescribeSources,
    PrepareCall,
    ProfileCalls,
    Subject,
    TimeBlock,
)


class SuiteRun:
    """Measures one suite step by step. A failing kernel is an outcome; an exception is a failure of
    the collector.

    Results of an interrupted run are read from the journal, not measured again.
    """

    def __init__(
        self,
        suite: SuiteAt,
        plan: RunPlan,
        workers: WorkerPool,
        session: DeviceSession,
        steps: Steps,
        journal: Journal | None = None,
        pairing: PairMember | None = None,
    ) -> None:
        self.suite = suite
        self.plan = plan
        self.workers = workers
        self.spent = SpentTime()
        self.cases: dict[Subject, CaseRun] = {}
        """In the order of the suite."""
        self.pinned: dict[Subject, tuple[Autotuning, ...]] = {}
        """What autotuned functions use instead of a choice of their own."""
        self.left_out: frozenset[Subject] = frozenset()
        """Subjects that this run was not asked to time: they have no measurement."""
        self.is_partial = False
        """Its time was over before every subject had its blocks."""
        self._session = session
        self._steps = steps
        self._journal = journal
        self._pairing = pairing
        # Both sides of a pair write one journal.
        self._side = ALONE
        self._of_side = ""
        if pairing is not None:
            self._side = str(pairing.side)
            self._of_side = f" of the {pairing.side}"
        # A resumed run keeps its ID, so that a record which was sent already is not doubled.
        if journal is None:
            self._run_id = uuid.uuid4()
            self._started_at = utc_now()
        else:
            self._run_id = journal.header.run_ids[self._side]
            self._started_at = journal.header.started_at
        self._device = plan.device or "cpu"
        self.loaded_files = LoadedFiles(suite.source, self.spent)
        self._chosen: ChosenMethod | None = None
        self._environment: Environment | None = None
        self.ceilings: tuple[Ceiling, ...] = ()
        self._source_digests: dict[str, str] = {}
        self._host_digests: dict[str, str] = {}
        self._implementation_digests: dict[str, str] = {}

    def load(self, *, may_be_empty: bool = False) -> None:
        """Load the suite, select what to measure, and restore results of an interrupted run.

        Raises:
            SuiteError: the suite cannot be loaded; or nothing matches the plan, and `may_be_empty`
            is false.
        """
        self._steps.say(f"loading the suite{self._of_side}")
        with self.spent.on(Activity.START):
            info = self.workers.start()
        self._device = info.device
        try:
            selected = select(info, self.plan)
        except SuiteError:
            if not may_be_empty:
                raise
            selected = ()
        self.cases = {run.subject: run for run in selected}
        # The server digests what each kernel uses once, in the order of the suite.
        kernels = tuple(dict.fromkeys(run.case.kernel for run in selected))
        # the two sides of a pair compare them
        is_pair = self._pairing is not None
        describe = DescribeSources(kernels=kernels, of_implementations=is_pair)
        with self.spent.on(Activity.START):
            reply = self.workers.request(describe, timeout_s=MACHINE_TIMEOUT_S)
        self._source_digests = reply.source_digests or {}
        self._host_digests = reply.host_digests or {}
        self._implementation_digests = reply.implementation_digests
        if self._journal is not None:
            self._restore(self._journal.entries(self._side))

    def _restore(self, entries: Sequence[Entry]) -> None:
        """Take over the results of an interrupted run."""
        for entry in entries:
            self._apply(entry)
        if entries:
            self.spent.add_earlier(entries[-1].spent_ns)
        # Restored steps count as done in the progress that a person sees.
        for case in self.cases.values():
            for _ in filter(None, (case.static_facts, case.accuracy, case.profile)):
                self._steps.step()

    def describe_machine(self) -> None:
        """Read the environment, choose a timer and measure the ceilings, while nothing else runs.

        Raises:
            CollectorError: the machine cannot be described, or the run was started on another one.
            TimerError: the requested timer or cache state is not available.
        """
        machine = MachineQuestions(
            workers=self.workers,
            spent=self.spent,
            device=self._device,
        )
        described, device_uuid = machine.describe()
        environment = self._session.begin(described, device_uuid)
        if self._environment is None:
            self._take(environment=environment)
        else:
            require_same_machine(self._environment, environment, is_on_cpu=self.is_on_cpu)
        if not self.is_on_cpu:
            self.workers.gpu_count = environment.device_count
        chosen = machine.choose_timing(self._requested_timing())
        self._chosen = chosen
        # An interrupted run has measured them; other ceilings would change the shares.
        if not self.ceilings:
            dtypes = {case_run.case.dtype for case_run in self.cases.values()}
            ceilings = machine.measure_ceilings(sorted(dtypes), chosen.method.timer)
            self._take(ceilings=ceilings)
        if not self.is_on_cpu:
            self._steps.note(str(chosen))
        if self._session.warning is not None:
            self._steps.note(self._session.warning)

    def _requested_timing(self) -> ChooseTiming:
        """The method of an interrupted run, or that of the plan."""
        for case in self.cases.values():
            if case.method is not None:
                # An earlier process of the run has chosen before.
                return ChooseTiming(timer=case.method.timer, cache=case.method.cache)
        return ChooseTiming(timer=self.plan.timer, cache=self.plan.cache)

    @property
    def is_on_cpu(self) -> bool:
        return self._device == "cpu"

    @property
    def compile_target(self) -> str | None:
        """Of the device; None on a CPU, or before the machine is described."""
        if self._environment is None:
            return None
        return self._environment.compile_target

    @property
    def to_compile(self) -> list[CaseRun]:
        if not self.plan.targets:
            return []
        cases = self.cases.values()
        return [case for case in cases if case.implementation.language != "torch"]

    @property
    def to_interpret(self) -> list[CaseRun]:
        """Triton implementations on a machine without a GPU: checked in the interpreter,
        not timed.
        """
        return [case for case in self.cases.values() if not case.runs_here]

    @property
    def to_check(self) -> list[CaseRun]:
        return [case for case in self.cases.values() if case.runs_here]

    @property
    def to_time(self) -> list[Subject]:
        """Subjects that are correct and have not failed during timing."""
        return [subject for subject, case in self.cases.items() if case.can_be_timed]

    @property
    def to_profile(self) -> list[CaseRun]:
        """Timed cases that run in one process, if profiles were requested."""
        # A group of ranks has no single profile.
        if not self.plan.has_profiles:
            return []
        timed = [case for case in self.cases.values() if case.can_be_timed and case.blocks]
        return [case for case in timed if case.rank_count == 1]

    def compile(self) -> None:
        """Compile and analyse what has no result yet."""
        missing = [case for case in self.to_compile if not case.static_facts]
        unproven = [case for case in self.to_compile if case.proof is None]
        if not (missing or unproven):
            return
        with (
            self.spent.on(Activity.COMPILE),
            compilers(self.workers.fork_server, self.suite.source) as workers,
        ):
            compiled = compile_subjects(
                workers=workers,
                subjects=[case.subject for case in missing],
                plan=self.plan,
                on_begin=self._saying("compiling"),
            )
            for _, facts in compiled:
                self.loaded_files.note(workers)
                self._take(compiled=facts)
                self._steps.step()
            proven = prove_subjects(
                workers=workers,
                subjects=[case.subject for case in unproven],
                plan=self.plan,
                on_begin=self._saying("analysing"),
            )
            for _, proof in proven:
                self._take(proof=proof)

    def check(self, workers: WorkerPool, cases: Sequence[CaseRun], *, worker_count: int) -> None:
        """Check cases on the device or in Triton's interpreter, `worker_count` at a time."""
        # a pair compares the values that are declared
        jobs = check_jobs(cases, has_regimes=self._pairing is None)
        replies = workers.do_all(
            jobs=jobs,
            worker_count=worker_count,
            timeout_s=self.plan.timeout_s,
            on_begin=self._saying("checking"),
        )
        with self.spent.on(Activity.CHECK), closing(replies):
            for job, reply in replies:
                self.loaded_files.note(workers)
                accuracy = self.cases[job.subject].accuracy_of(reply)
                self._take(accuracy=accuracy)
                self._steps.show(f"{job.subject}{self._of_side}: {words_of(accuracy)}")
                self._steps.step()

    def _saying(self, verb: str) -> OnBegin:
        return lambda subject: self._steps.say(f"{verb} {subject}{self._of_side}")

    def lacks_block(self, subject: Subject, number: int) -> bool:
        """Whether block `number`, from 0, is to be timed and missing."""
        case = self.cases.get(subject)
        return case is not None and case.can_be_timed and len(case.blocks) <= number

    def begin_block(self, subjects: Iterable[Subject], number: int) -> None:
        """Replace the process by a fresh one, and compile there what torch.compile compiles."""
        self.workers.stop()
        self.workers.start()
        for subject in subjects:
            if not self.lacks_block(subject, number):
                continue
            case = self.cases[subject]
            # on a GPU a compiler may time kernels, and nothing may run beside them
            if self.is_on_cpu and case.implementation.is_compiled and case.rank_count == 1:
                job = PrepareCall(**subject.named)
                self.workers.request(job, timeout_s=self.plan.timeout_s)

    def cool_down(self) -> None:
        if self._session.is_too_hot:
            with self.spent.on(Activity.COOL_DOWN):
                self._session.cool_down(self._steps.note)

    def take_block(self, subject: Subject, launches_per_sample: int | None = None) -> None:
        """Time one more block, which chooses the launches per sample unless given."""
        case = self.cases[subject]
        # The method is that of the whole run: times by two timers cannot be compared.
        method = None
        if self._chosen is not None:
            method = self._chosen.method
        job = TimeBlock(
            **subject.named,
            rank_count=case.rank_count,
            plan=self.plan.sampling,
            method=method,
            launches_per_sample=launches_per_sample,
            pinned=self.pinned.get(subject, ()),
        )
        self._steps.say(f"timing {subject}{self._of_side}")
        with self.spent.on(Activity.OVERHEAD):
            reply = self.workers.request(job, timeout_s=self.plan.block_timeout_s)
        taken = None
        if reply.block is not None:
            # The request took warm-up, timed launches, and the rest.
            self.spent.move(
                Activity.WARM_UP,
                reply.block.warm_up_ns,
                source=Activity.OVERHEAD,
            )
            self.spent.move(
                Activity.TIMING,
                reply.block.timed_ns,
                source=Activity.OVERHEAD,
            )
            taken = self._session.with_state(reply.block)
        step = TimedStep(
            **subject.named,
            blocks_before=len(case.blocks),
            taken=taken,
            failure=reply.failure,
        )
        self._take(timed=step)
        # a pair is shown as a whole, once it is decided
        if self._pairing is None and taken is not None and not step.blocks_before:
            median_ns = statistics.median(taken.block.samples_ns)
            self._steps.show(f"{subject}: {format_ns(median_ns)}")
        self._steps.step()

    def choices_of(self, subject: Subject) -> tuple[Autotuning, ...]:
        """What Triton's autotuner chooses for a subject that is timed; an interrupted run has
        chosen already.
        """
        case = self.cases[subject]
        if case.autotuning or case.implementation.language != "triton":
            return case.autotuning
        self._steps.say(f"tuning {subject}{self._of_side}")
        with self.spent.on(Activity.OVERHEAD):
            job = PrepareCall(**subject.named, rank_count=case.rank_count)
            reply = self.workers.request(job, timeout_s=self.plan.timeout_s)
        return reply.autotuning

    def profile(self) -> None:
        """Profile some calls; a subject that cannot be profiled keeps its times."""
        self._steps.total += len(self.to_profile)
        for case in self.to_profile:
            if case.profile is not None:
                continue
            self._steps.say(f"profiling {case.subject}{self._of_side}")
            with self.spent.on(Activity.PROFILE):
                pinned = self.pinned.get(case.subject, ())
                job = ProfileCalls(**case.subject.named, pinned=pinned)
                reply = self.workers.request(job, timeout_s=self.plan.block_timeout_s)
            if reply.profile is not None:
                self._take(profile=reply.profile)
            elif reply.failure is not None:
                self._steps.note(f"{case.subject} was not profiled: {reply.failure.message}")
            self._steps.step()

    def record(self) -> RunRecord:
        """The redacted record of all results, in the order of the suite."""
        assert self._environment is not None
        assert self._chosen is not None, "describe_machine() comes first"
        results = results_of(
            runs=[case for case in self.cases.values() if not case.is_later_than(self.suite)],
            left_out=self.left_out,
            method=self._chosen.method,
            ceilings=self.ceilings,
            environment=self._environment,
        )
        record = RunRecord(
            run_id=self._run_id,
            project=self.suite.project,
            commit=self.suite.commit,
            started_at=self._started_at,
            finished_at=max(utc_now(), self._started_at),  # the clock may have been set back
            harness_version=HARNESS_VERSION,
            environment=self._environment,
            machine=machine_hash(self.suite.project, self._session.uuid),
            preset=self.plan.preset,
            pairing=self._pairing,
            ceilings=self.ceilings,
            **results,
            suite=self.suite.source.name,
            provenance=self.loaded_files.listed,
            requirements=self._requirements,
            is_isolated=self.suite.source.python is not None,
            source_digests=self._source_digests,
            host_digests=self._host_digests,
            implementation_digests=self._implementation_digests,
            telemetry=self._session.telemetry,
            spent_ns=self.spent.total_ns,
            is_partial=self.is_partial,
        )
        # Before anything is written or sent.
        return redact(record, Redaction.of_this_machine())

    @cached_property
    def _requirements(self) -> dict[str, str]:
        tree = self.suite.source.tree
        if tree is None:
            return {}
        return read_requirements(tree, list_files(tree))

    def _take(self, **result: Any) -> None:
        """Apply a new result, one field of `Entry`, and write it to the journal."""
        self.loaded_files.note(self.workers)
        entry = Entry(
            side=self._side,
            spent_ns=self.spent.total_ns,
            seen=self._session.take_new(),
            loaded=self.loaded_files.take_new(),
            **result,
        )
        self._apply(entry)
        if self._journal is not None:
            self._journal.append(entry)

    def _apply(self, entry: Entry) -> None:
        """Apply a result, new or restored."""
        self.loaded_files.restore(entry.loaded)
        self._environment = entry.environment or self._environment
        self.ceilings = entry.ceilings or self.ceilings
        if entry.subject is None:
            return
        case = self.cases.get(entry.subject)
        if case is None:
            return
        case.apply(entry, keeps_gaps=self._pairing is None)
