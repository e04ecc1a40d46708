"""Every error that Perdure raises, in one tree.

    PerdureError
    ├── ValueProblem                 a value and its stored bytes
    │   ├── NotStorable              PD101  refused at the call, with the path to it
    │   ├── CorruptValue             PD102  stored bytes that no encoder of ours wrote
    │   ├── UnknownType              PD103  a stored type that nobody registered here
    │   ├── ValueTooLarge            PD104  over a limit of perdure.limits
    │   └── EventInvalid             PD105  an event does not fit the schema of its kind
    ├── StoreProblem                 the place where everything lives
    │   ├── StoreUnavailable         PD201  cannot be opened here
    │   ├── StoreBusy                PD202  another process kept the write lock too long
    │   ├── StorageFull              PD203  no space left; nothing acknowledged is lost
    │   ├── StoreFenced              PD204  an I/O error: this process must reopen
    │   ├── StoreTooNew              PD205  written by a later version of Perdure
    │   ├── StoreMoved               PD206  a copy, or the same file on another host
    │   ├── StoreForked              PD207  used in a child made by os.fork()
    │   ├── StoreClosed              PD208  used after close()
    │   ├── JournalDamaged           PD209  an entry does not fit its chain
    │   ├── WrongStore               PD210  an anchor of another store
    │   ├── StoreTampered            PD221  also a StoreUnavailable: its schema is not as Perdure made it
    │   ├── StoreReadOnly            PD222  on read-only media, or without the permission to write
    │   ├── StoreUrlInvalid          PD223  also a StoreUnavailable and a ValueError: names no store
    │   ├── StoreTypeInvalid         PD224  also a StoreUnavailable and a TypeError: neither text nor path
    │   ├── StoreRolledBack          PD212  entries are gone that were acknowledged
    │   ├── ArchiveDamaged           PD220  a file of folded entries is not as it was written
    │   └── ArtifactDamaged          PD211  a chunk of an artifact is missing or changed
    ├── RunProblem                   the life of a run
    │   ├── RunBusy                  PD301  open elsewhere, and its holder is alive
    │   ├── RunFinished              PD302  a finished run is replayed read-only
    │   │   └── RunFolded            PD320  its steps are in an archive
    │   ├── RunNotFound              PD303  no run of that id
    │   ├── RunWaiting               PD304  waits for a person or an event
    │   ├── InputChanged             PD305  the same id with another input
    │   ├── LeaseLost                PD306  another process has taken the run over
    │   ├── Diverged                 PD307  the code asks for another effect than recorded
    │   ├── NothingToAnswer          PD308  no open question under that run
    │   ├── AlreadyAnswered          PD309  somebody else was first
    │   ├── RunNotFinished           PD310  there is no result yet
    │   ├── BudgetExceeded           PD311  the run has spent what it may
    │   ├── WaitTimeout              PD312  nobody answered in time; also a TimeoutError
    │   ├── RunWasCancelled          PD313  also a RunCancelled: somebody has ended it for good
    │   ├── RunWasPaused             PD314  also a RunPaused: goes on when somebody resumes it
    │   ├── RunNotPaused             PD315  there is nothing to resume
    │   ├── ResultErased             PD316  the result had a text that was forgotten everywhere
    │   ├── PointNotFound            PD330  a run has no such entry, step or checkpoint
    │   ├── RunExists                PD331  a fork needs an id that no run has
    │   ├── TaskFailed               PD340  the run whose result was wanted has failed
    │   ├── RunPoisoned              PD341  its workers die at the same place, again and again
    │   ├── NothingToRetry           PD342  only a run that is dead is queued again
    │   ├── ContextTooSmall          PD350  what must be shown takes more than the budget
    │   ├── RefNotFound              PD351  a pointer to a message that is not there
    │   └── NothingCompacted         PD352  there is no compaction to take back
    ├── CallProblem                  steps and effects
    │   ├── NotDurable               PD401  outside a run
    │   ├── EffectInsideStep         PD402  an effect within something repeatable
    │   ├── WrongAgent               PD403  a step of one agent in a run of another
    │   ├── InDoubt                  PD404  nobody knows whether the effect happened
    │   ├── StepFailed               PD405  a recorded exception of an unregistered type
    │   ├── StepTimeout              PD406  also a TimeoutError
    │   ├── Abandoned                PD407  a timed-out body tried to write
    │   ├── VersionConflict          PD408  a key of the state has another version by now
    │   ├── CheckpointNotFound       PD409  no checkpoint of that name
    │   ├── ArtifactNotFound         PD410  no artifact of that name
    │   ├── WriteInsideUpdate        PD411  the function given to update writes something else
    │   ├── HistoryFolded            PD420  the state of that time is in an archive
    │   ├── TaskNotFound             PD412  no task of that name is declared here
    │   ├── ThreadNotFound           PD413  no thread of that id, or no such checkpoint of it
    │   ├── ThreadConflict           PD414  another writer has gone on with the thread meanwhile
    │   ├── ThreadDeleted            PD415  the thread was deleted while somebody was at work on it
    │   ├── NotAwaited               PD416  a synchronous run was given a coroutine; also a TypeError
    │   ├── EventsFolded             PD421  the events of that time are in an archive
    │   ├── MemoryNotFound           PD430  no memory of that id, or it was forgotten
    │   └── BadEmbedder              PD431  cannot turn texts into vectors
    ├── WorkspaceProblem             the folder that people read
    │   ├── WorkspaceNotFound        PD601  no workspace here
    │   └── PathRefused              PD602  no file of a workspace, or a link out of it
    ├── AgentProblem                 who an agent is, and where it lives
    │   ├── AgentMoved               PD801  it has left this store, and lives elsewhere
    │   ├── AgentRetired             PD802  it is not to work any more
    │   ├── AgentExists              PD803  an agent of that name is there already
    │   ├── AgentNotFound            PD804  the store has no agent of that name
    │   ├── ExportDamaged            PD805  a file with an agent in it is not as it was written
    │   ├── WrongPassphrase          PD806  the private key in the file does not open with it
    │   └── ExportUnsigned           PD807  nothing proves that the agent wrote the file with it
    └── WorkflowProblem              workflows and their steps
        ├── WorkflowNotFound         PD501  no workflow, or no step, of that name
        ├── WorkflowInvalid          PD502  steps that make no plan: a cycle, a name twice
        ├── WorkflowChanged          PD503  the step is another one in a newer version
        ├── StepClaimed              PD504  somebody who is alive is at it
        ├── StepNotReady             PD505  waits for other steps, or is done
        ├── UnknownAction            PD506  nothing is registered under that name
        └── WorkflowBlocked          PD507  nothing that is left can be done now

    RunStopped                       no Exception: leaves a block although its code says `except Exception`
    ├── RunCancelled                 PD313  raised in the block of a run that is cancelled
    └── RunPaused                    PD314  raised in the block of a run that is paused

`NotDone` is not an error of Perdure but a word of yours: raise it in an effect to say
that nothing happened. Warnings: `NotDurableWarning`, `StoreMovedWarning`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PerdureError(Exception):
    """Something went wrong in Perdure."""

    code: ClassVar[str] = "PD000"
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        if hint:
            self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text

    @property
    def message(self) -> str:
        """What happened, without the hint."""
        return super().__str__()


class ValueProblem(PerdureError):
    """A value or its stored bytes cannot be used."""


class NotStorable(ValueProblem, TypeError):
    """The value cannot be stored."""

    code = "PD101"


class CorruptValue(ValueProblem, ValueError):
    """The stored bytes are not a value that Perdure wrote."""

    code = "PD102"
    hint = "run `perdure verify` to find the damaged entry"


class UnknownType(ValueProblem, LookupError):
    """The stored value has a type that is not registered in this process."""

    code = "PD103"
    hint = "import the module that registers it with @perdure.stored, or register an upcaster"


class ValueTooLarge(ValueProblem, ValueError):
    """The value is over a limit."""

    code = "PD104"


class EventInvalid(ValueProblem, ValueError):
    """The event does not fit the schema of its kind."""

    code = "PD105"


class StoreProblem(PerdureError):
    """The store cannot do this."""


class StoreUnavailable(StoreProblem):
    """The store cannot be opened."""

    code = "PD201"


class StoreTampered(StoreUnavailable):
    """The schema of the store is not as Perdure made it; nothing in it was run or changed."""

    code = "PD221"
    hint = (
        "restore the store from a backup, or copy what you need from a file that you trust; a trigger, view or index "
        "that you added yourself can be dropped with the sqlite3 shell"
    )


class StoreUrlInvalid(StoreUnavailable, ValueError):
    """This text names no store."""

    code = "PD223"
    hint = "give a path, sqlite:///path or postgresql://user@host/database"


class StoreTypeInvalid(StoreUnavailable, TypeError):
    """A store is named by a str or a path."""

    code = "PD224"
    hint = "give a str, a pathlib.Path, or None for the default"


class StoreReadOnly(StoreProblem, PermissionError):
    """The store cannot be written here; nothing was written."""

    code = "PD222"
    hint = "reading works; to write, copy the store to a folder that you may write and use the copy"


class StoreBusy(StoreProblem, TimeoutError):
    """Another process kept the store's write lock for too long; nothing was written."""

    code = "PD202"
    hint = "look for a stopped process with `perdure doctor`, then try again"


class StorageFull(StoreProblem, OSError):
    """No space is left for the store; nothing was written, nothing acknowledged is lost."""

    code = "PD203"
    hint = "free some space and call again; reading goes on working"


class StoreFenced(StoreProblem, OSError):
    """An I/O error makes it unknown what reached the disk, so this process writes no more."""

    code = "PD204"
    hint = "check the disk, then start again (or close the agent and open it): the store recovers"


class StoreTooNew(StoreProblem):
    """The store was written by a later version of Perdure."""

    code = "PD205"
    hint = "upgrade with `pip install -U perdure`, or open the copy from before the store was brought forward"


class StoreMoved(StoreProblem):
    """The store is on another host, or is another file, than when it was last used."""

    code = "PD206"
    hint = "when this copy is the one to go on with, run `perdure adopt`"


class StoreForked(StoreProblem):
    """This process was made by os.fork(); connections and leases belong to its parent."""

    code = "PD207"
    hint = "make a new Agent in the child"


class StoreClosed(StoreProblem):
    """The store has been closed."""

    code = "PD208"


class JournalDamaged(StoreProblem):
    """An entry of the journal does not fit the chain before it."""

    code = "PD209"
    hint = "run `perdure verify` to locate it, and restore from a backup"


class WrongStore(StoreProblem):
    """The anchor was made of another store."""

    code = "PD210"
    hint = "say with --store which store it was made of, or compare with an anchor of this one"


class ArtifactDamaged(StoreProblem, ValueError):
    """A part of an artifact is missing, or is not what was saved."""

    code = "PD211"
    hint = "run `perdure verify` to see what else is damaged, and restore from a backup, or save it again"

    def __init__(self, message: str = "", *, hint: str = "", name: str = "", version: int = 0, offset: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.version = version
        self.offset = offset
        """Where the part begins that cannot be read; all before it is sound."""


class StoreRolledBack(StoreProblem):
    """The store has lost entries that were acknowledged. It can be read; nothing is written to it."""

    code = "PD212"
    hint = (
        "put the newer database or its log back, if you have them; to go on without what is missing, run "
        "`perdure adopt`: effects that may have happened in it are in doubt then"
    )


class ArchiveDamaged(StoreProblem):
    """The archive is not as it was written."""

    code = "PD220"
    hint = "take another copy of it, from a backup"


class RunProblem(PerdureError):
    """The run cannot do this."""


class RunBusy(RunProblem):
    """The run is open elsewhere and its holder is alive."""

    code = "PD301"
    hint = "wait for it to end, or stop that process: a dead holder is taken over at once"


class RunFinished(RunProblem):
    """The run is finished: it is replayed, and does nothing new."""

    code = "PD302"
    hint = "start a run with a new id; agent.runs.result(id) reads the result without replay"


class RunFolded(RunFinished):
    """The run is finished and was folded: its steps are not in the store any more."""

    code = "PD320"
    hint = "agent.runs.result(id) has its result; `perdure archive show` shows what it did"


class RunNotFound(RunProblem, LookupError):
    """There is no such run."""

    code = "PD303"
    hint = "`perdure runs` lists the runs of this store"


class RunWaiting(RunProblem):
    """The run waits for an answer."""

    code = "PD304"
    hint = "answer with `perdure answer RUN ...`, then start it again"


class InputChanged(RunProblem, ValueError):
    """The run was started with another input."""

    code = "PD305"
    hint = "leave input= out to resume it, or start a run with a new id"


class LeaseLost(RunProblem):
    """Another process has taken this run over; nothing was written."""

    code = "PD306"
    hint = "stop here: the new holder continues the run"


class Diverged(RunProblem):
    """The code asks for an effect that differs from the recorded one."""

    code = "PD307"
    hint = 'if the recorded one is not wanted any more, use on_change="rerun"'


class NothingToAnswer(RunProblem, LookupError):
    """The run has no open question."""

    code = "PD308"
    hint = "`perdure show RUN` tells what it is doing"


class AlreadyAnswered(RunProblem):
    """The question has been answered already; the first answer counts."""

    code = "PD309"
    hint = "start the program again, if it does not run: it goes on with that answer, or asks anew if it does not fit"


class ResultErased(RunProblem, LookupError):
    """The result of the run was erased."""

    code = "PD316"
    hint = "it had a text that was forgotten with everywhere=True; a run with a new id makes another one"


class RunNotFinished(RunProblem):
    """The run has not finished, so there is no result yet."""

    code = "PD310"
    hint = "open it again under the same id to continue it"


class BudgetExceeded(RunProblem):
    """The run has spent its budget, so nothing new is begun in it."""

    code = "PD311"
    hint = "what is done is kept: open the run again with a higher budget_usd= to go on"


class WaitTimeout(RunProblem, TimeoutError):
    """What the run waited for did not come in time."""

    code = "PD312"
    hint = "give default= to go on without it"


class RunStopped(BaseException):
    """Somebody has told the run to stop."""

    # No Exception: a program that says `except Exception` around a tool must not keep a cancelled run going. Outside of
    # the block of the run, where that is no danger, what is raised is an Exception too: see RunWasCancelled.

    code: ClassVar[str] = ""
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str = "", reason: str = "", by: str = "", run: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.hint = hint or type(self).hint
        self.run = run
        """The id of the run."""
        self.reason = reason
        self.by = by
        """Who has said so."""

    def __str__(self) -> str:
        text = BaseException.__str__(self)  # a PerdureError beside it would say the hint too
        return f"{text} ({self.hint})" if self.hint else text

    @property
    def message(self) -> str:
        """What happened, without the hint."""
        return BaseException.__str__(self)


class RunCancelled(RunStopped):
    """The run was cancelled, for good."""

    code = "PD313"
    hint = "what it did is kept: `perdure show` tells; start a run with a new id"


class RunPaused(RunStopped):
    """The run is paused."""

    code = "PD314"
    hint = "agent.runs.resume(id) or `perdure resume RUN`, then start it again"


class RunWasCancelled(RunCancelled, RunProblem):
    """The run was cancelled, for good."""


class RunWasPaused(RunPaused, RunProblem):
    """The run is paused."""


class RunNotPaused(RunProblem):
    """The run is not paused, so there is nothing to resume."""

    code = "PD315"
    hint = "start its program again: a run goes on under the same id"


class PointNotFound(RunProblem, LookupError):
    """The run has no such entry, step or checkpoint."""

    code = "PD330"


class RunExists(RunProblem, ValueError):
    """There is a run of that id already."""

    code = "PD331"


class TaskFailed(RunProblem):
    """The run whose result was wanted has failed."""

    code = "PD340"
    hint = "`perdure show RUN` tells what happened; agent.runs.retry(id) or `perdure retry RUN` queues it again"


class RunPoisoned(RunProblem):
    """The workers of this run die at the same place, again and again."""

    code = "PD341"
    hint = "mend what kills the process, then agent.runs.retry(id) or `perdure retry RUN` queues it again"


class NothingToRetry(RunProblem):
    """The run is not dead, so there is nothing to try again."""

    code = "PD342"
    hint = "`perdure queues` and `perdure show RUN` tell where it is"


class ContextTooSmall(RunProblem, ValueError):
    """What must be shown takes more tokens than the budget."""

    code = "PD350"
    hint = "give a larger budget=, or unpin messages with run.messages.unpin(index)"


class RefNotFound(RunProblem, LookupError):
    """There is no message at this pointer."""

    code = "PD351"
    hint = "pointers look like perdure:RUN#17, and stand where something was shortened, and in context.dropped"


class NothingCompacted(RunProblem):
    """The conversation is not compacted, so there is nothing to take back."""

    code = "PD352"


class CallProblem(PerdureError):
    """A step or an effect cannot be called like this."""


class NotDurable(CallProblem):
    """Called outside of a run, so nothing would be remembered."""

    code = "PD401"
    hint = "call it inside `with agent.run(id):`; in a thread, use run.executor() or run.bind(fn)"


class EffectInsideStep(CallProblem):
    """An effect cannot be inside a step or an effect, which may be repeated as a whole."""

    code = "PD402"
    hint = "call the effect from the run, beside the step"


class WrongAgent(CallProblem):
    """A step of one agent was called in a run of another agent."""

    code = "PD403"


class InDoubt(CallProblem):
    """Nobody knows whether the effect happened."""

    code = "PD404"
    hint = "find out, then `perdure answer RUN --done RESULT`, `--retry` or `--fail`"


class StepFailed(CallProblem):
    """A recorded exception whose type is not registered."""

    code = "PD405"
    hint = "list the type in raises=(...) of the step to get it back as itself"

    def __init__(self, message: str = "", *, hint: str = "", type_name: str = "", args: Any = ()) -> None:
        super().__init__(message, hint=hint)
        self.type_name = type_name
        self.original_args = args


class StepTimeout(CallProblem, TimeoutError):
    """The body took longer than its timeout."""

    code = "PD406"


class Abandoned(CallProblem):
    """This body has timed out or its run has ended: it can write nothing any more."""

    code = "PD407"


class VersionConflict(CallProblem):
    """Somebody else has changed the key meanwhile: nothing was written."""

    code = "PD408"
    hint = "read it again and decide anew; `update` and `incr` cannot lose"

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        expected: int = 0,
        found: int = 0,
        yours: Any = None,
        theirs: Any = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        """The version that was wanted; 0 is a key that is not there."""
        self.found = found
        """The version that it has."""
        self.yours = yours
        """The value that was to be written."""
        self.theirs = theirs
        """The value that is there."""


class HistoryFolded(CallProblem, LookupError):
    """The state is not known any more as it was then."""

    code = "PD420"
    hint = "older changes were folded by `perdure gc --fold-before`, and are in its archives"


class EventsFolded(CallProblem, LookupError):
    """Events that would be needed were folded, and are in archives."""

    code = "PD421"
    hint = "`perdure gc --events-before` has archived them; `perdure archive show` reads archives"


class CheckpointNotFound(CallProblem, LookupError):
    """There is no checkpoint of that name."""

    code = "PD409"


class ThreadNotFound(CallProblem, LookupError):
    """There is no thread of that id, or it has no such checkpoint."""

    code = "PD413"


class ThreadConflict(CallProblem):
    """Another writer has gone on with the thread from the same checkpoint; nothing was written."""

    code = "PD414"
    hint = "read the thread again and go on from its newest checkpoint; on_conflict='fork' lets both go on"


class ThreadDeleted(CallProblem):
    """The thread was deleted while this was at work on it; nothing was written."""

    code = "PD415"
    hint = "start again without a checkpoint id: the thread begins anew"


class NotAwaited(CallProblem, TypeError):
    """A function returned a coroutine where nobody awaits it. The coroutine was closed and did nothing."""

    code = "PD416"
    hint = "use AsyncAgent, which awaits it, or return the value itself"


class MemoryNotFound(CallProblem, LookupError):
    """There is no memory of that id, or it was forgotten."""

    code = "PD430"
    hint = "`perdure memory list` shows which there are; what was forgotten cannot be brought back"


class BadEmbedder(CallProblem, ValueError):
    """What was given as an embedder is none, or what it gave are no vectors; nothing was written."""

    code = "PD431"
    hint = "an embedder has an id, dims, and embed(texts), which gives a row of dims numbers for each text"


class ArtifactNotFound(CallProblem, LookupError):
    """There is no artifact of that name."""

    code = "PD410"


class TaskNotFound(CallProblem, LookupError):
    """No task of that name is declared by this agent."""

    code = "PD412"


class WriteInsideUpdate(CallProblem):
    """The function given to `update` is called inside the commit: it cannot write anything itself."""

    code = "PD411"
    hint = "return the new value, and write the rest before or after it, or all of it in agent.state.transaction()"


class AgentProblem(PerdureError):
    """The agent cannot do this here."""


class AgentMoved(AgentProblem):
    """The agent has left this store, and goes on elsewhere."""

    code = "PD801"
    hint = "continue it there; if nobody has imported the file yet: `perdure import FILE --store URL`"


class AgentRetired(AgentProblem):
    """The agent is retired: nothing is written for it any more."""

    code = "PD802"
    hint = "what it has done can still be read; agent.export makes a copy that may go on"


class AgentExists(AgentProblem):
    """The store has an agent of that name already."""

    code = "PD803"
    hint = "give the one that arrives another name: `perdure import FILE --name NAME`, or name= in Python"


class AgentNotFound(AgentProblem, LookupError):
    """The store has no agent of that name."""

    code = "PD804"


class ExportDamaged(AgentProblem):
    """The file is not as it was written; nothing was imported."""

    code = "PD805"
    hint = "take another copy of it, or export the agent again"


class WrongPassphrase(AgentProblem):
    """The passphrase does not open the private key in the file; nothing was imported."""

    code = "PD806"


class ExportUnsigned(AgentProblem):
    """The file is not signed by the agent that is in it, so anybody may have written it; nothing was imported."""

    code = "PD807"
    hint = (
        "export the agent where its key is, which signs the file; "
        "if you know who wrote it: accept_unsigned=True, or `perdure import FILE --accept-unsigned`"
    )


class WorkflowProblem(PerdureError):
    """Something about a workflow or one of its steps."""


class WorkflowNotFound(WorkflowProblem, LookupError):
    """There is no workflow, or no step, of that name."""

    code = "PD501"


class WorkflowInvalid(WorkflowProblem, ValueError):
    """The steps do not make a workflow."""

    code = "PD502"


class WorkflowChanged(WorkflowProblem):
    """In the newest version of the workflow this step is another one."""

    code = "PD503"
    hint = "get the workflow again and decide anew"


class StepClaimed(WorkflowProblem):
    """Somebody who is alive is at this step."""

    code = "PD504"
    hint = "take another of wf.ready_steps(), or wait; the step of a process that died is free at once"


class StepNotReady(WorkflowProblem):
    """The step cannot be started now."""

    code = "PD505"


class UnknownAction(WorkflowProblem, LookupError):
    """Nothing is registered under the name of this action."""

    code = "PD506"


class WorkflowBlocked(WorkflowProblem):
    """Nothing that is left of the workflow can be done now."""

    code = "PD507"


class WorkspaceProblem(PerdureError):
    """Something about a workspace or one of its files."""


class WorkspaceNotFound(WorkspaceProblem, LookupError):
    """There is no workspace here."""

    code = "PD601"
    hint = "make one with agent.workspace(path), or with `perdure workspace init PATH`"


class PathRefused(WorkspaceProblem, ValueError):
    """The path is not that of a file of the workspace."""

    code = "PD602"


class NotDone(Exception):
    """Raised in an effect: nothing happened. Also what `check` returns for "it did not happen"."""


class NotDurableWarning(UserWarning):
    """Something that looks durable is not."""


class StoreMovedWarning(UserWarning):
    """The store was last used on another host or as another file."""
