"""Every error that Perdure raises, in one tree.

    PerdureError
    ├── ValueProblem                 a value and its stored bytes
    │   ├── NotStorable              PD101  refused at the call; the message names the path inside the value
    │   ├── CorruptValue             PD102  stored bytes that Perdure did not write
    │   ├── UnknownType              PD103  a stored type that is not registered in this process
    │   ├── ValueTooLarge            PD104  over a limit of perdure.values.limits
    │   └── EventInvalid             PD105  an event does not fit the schema of its kind
    ├── StoreProblem                 the database
    │   ├── StoreUnavailable         PD201  cannot be opened here
    │   ├── StoreBusy                PD202  another process held the write lock too long
    │   ├── StorageFull              PD203  no space left; nothing acknowledged is lost
    │   ├── StoreFenced              PD204  an I/O error: this process must reopen
    │   ├── StoreTooNew              PD205  written by a later version of Perdure
    │   ├── StoreMoved               PD206  a copy, or the same file on another host
    │   ├── StoreForked              PD207  used in a child made by os.fork()
    │   ├── StoreClosed              PD208  used after close()
    │   ├── JournalDamaged           PD209  an entry does not fit its chain
    │   ├── WrongStore               PD210  the anchor belongs to another store
    │   ├── StoreTampered            PD221  also a StoreUnavailable: the schema differs from Perdure's
    │   ├── StoreReadOnly            PD222  read-only media, or no permission to write
    │   ├── StoreUrlInvalid          PD223  also a StoreUnavailable and a ValueError: names no store
    │   ├── StoreTypeInvalid         PD224  also a StoreUnavailable and a TypeError: neither text nor path
    │   ├── StoreRolledBack          PD212  acknowledged entries are missing
    │   ├── ArchiveDamaged           PD220  a file of compacted entries has changed since it was written
    │   └── ArtifactDamaged          PD211  a chunk of an artifact is missing or changed
    ├── RunProblem                   the life of a run
    │   ├── RunBusy                  PD301  open elsewhere, and its holder is alive
    │   ├── RunFinished              PD302  a finished run is replayed read-only
    │   │   └── RunCompacted         PD320  its steps are in an archive
    │   ├── RunNotFound              PD303  no run has that id
    │   │   └── RunDeleted           PD317  it was deleted with its conversation
    │   ├── RunWaiting               PD304  waits for a person or an event
    │   ├── InputChanged             PD305  the same id with another input
    │   ├── LeaseLost                PD306  another process has taken over the run
    │   ├── Diverged                 PD307  the code does something else than recorded
    │   ├── NothingToAnswer          PD308  the run has no open question
    │   ├── AlreadyAnswered          PD309  the first answer counts
    │   ├── RunNotFinished           PD310  there is no result yet
    │   ├── BudgetExceeded           PD311  the run has spent its budget
    │   ├── WaitTimeout              PD312  no answer or event arrived in time; also a TimeoutError
    │   ├── RunWasCancelled          PD313  also a RunCancelled: the run was cancelled for good
    │   ├── RunWasPaused             PD314  also a RunPaused: the run is paused until it is resumed
    │   ├── RunNotPaused             PD315  there is nothing to resume
    │   ├── ResultErased             PD316  the result contained text that was forgotten everywhere
    │   ├── PointNotFound            PD330  the run has no such entry, step or checkpoint
    │   ├── RunExists                PD331  the id of a fork must be new
    │   ├── TaskFailed               PD340  the awaited run has failed
    │   ├── RunPoisoned              PD341  workers died repeatedly at the same place of the run
    │   ├── NothingToRetry           PD342  only a dead run can be queued again
    │   ├── ContextTooSmall          PD350  the mandatory parts exceed the budget
    │   ├── RefNotFound              PD351  the pointer refers to no message
    │   ├── NothingCompacted         PD352  there is no compaction to undo
    │   ├── TurnUnfinished           PD360  the last turn of the thread has not ended
    │   ├── NoTurn                   PD361  the thread has no turn to resume, and none is queued
    │   ├── ForeignThread            PD362  the thread belongs to another framework
    │   ├── AlreadyReplied           PD363  a turn has one reply
    │   └── ReplayUnknown            PD370  unknown which recorded effects the client of a server has reached
    ├── CallProblem                  steps and effects
    │   ├── NotDurable               PD401  called outside a run
    │   ├── EffectInsideStep         PD402  an effect inside a step or an effect
    │   ├── WrongAgent               PD403  a step of one agent in a run of another
    │   ├── InDoubt                  PD404  the outcome of an effect is unknown
    │   ├── StepFailed               PD405  a recorded exception of an unregistered type
    │   ├── StepTimeout              PD406  also a TimeoutError
    │   ├── Abandoned                PD407  a timed-out body tried to write
    │   ├── VersionConflict          PD408  the state key has another version
    │   ├── CheckpointNotFound       PD409  no checkpoint has that name
    │   ├── ArtifactNotFound         PD410  no artifact has that name
    │   ├── WriteInsideUpdate        PD411  the function given to `update` tried to write
    │   ├── HistoryCompacted         PD420  the state of that time is in an archive
    │   ├── TaskNotFound             PD412  the agent declares no task of that name
    │   ├── ThreadNotFound           PD413  no such thread, or no such checkpoint in it
    │   ├── ThreadConflict           PD414  another writer has continued the thread
    │   ├── ThreadDeleted            PD415  the thread was deleted while it was in use
    │   ├── NotAwaited               PD416  a synchronous run was given a coroutine; also a TypeError
    │   ├── UnknownAttribute         PD417  a mistyped attribute of a run or an agent; also an AttributeError
    │   ├── WrongValue               PD418  an argument has a wrong value; also a ValueError
    │   ├── WrongType                PD419  an argument has a wrong type; also a TypeError
    │   ├── ExtraMissing             PD422  a package that this part needs is not installed; also an ImportError
    │   ├── EventsCompacted          PD421  the events of that time are in an archive
    │   ├── ConfigurationBroken      PD423  a tool's configuration file cannot be read or edited safely
    │   ├── MemoryNotFound           PD430  no memory has that id, or it was forgotten
    │   └── BadEmbedder              PD431  cannot turn texts into vectors
    ├── WorkspaceProblem             the folder of files that people read and edit
    │   ├── WorkspaceNotFound        PD601  no workspace here
    │   ├── WorkspaceReadOnly        PD603  the folder cannot be written; also an OSError
    │   └── PathRefused              PD602  not a file of the workspace, or a link out of it
    ├── AgentProblem                 identity, export and import of an agent
    │   ├── AgentMoved               PD801  the agent has moved to another store
    │   ├── AgentRetired             PD802  the agent is retired
    │   ├── AgentExists              PD803  the store already has an agent of that name
    │   ├── AgentNotFound            PD804  the store has no agent of that name
    │   ├── ExportDamaged            PD805  the export file has changed since it was written
    │   ├── WrongPassphrase          PD806  the passphrase does not open the private key
    │   ├── ExportUnsigned           PD807  the export file has no signature of its agent
    │   └── ExportFolderNotFound     PD808  the folder of the export does not exist
    ├── PlaybookProblem              playbooks and their plays
    │   ├── PlaybookNotFound         PD701  no playbook, version or lesson has that name
    │   └── PlaybookFailed           PD702  the answer of the strongest tier was refused
    ├── WorkflowProblem              workflows and their steps
    │   ├── WorkflowNotFound         PD501  no workflow or step has that name
    │   ├── WorkflowInvalid          PD502  the steps have a cycle, a duplicate name, ...
    │   ├── WorkflowChanged          PD503  a newer version has changed the step
    │   ├── StepClaimed              PD504  another live process has claimed the step
    │   ├── StepNotReady             PD505  waits for other steps, or is done
    │   ├── UnknownAction            PD506  no action is registered under that name
    │   └── WorkflowBlocked          PD507  none of the remaining steps can run now
    └── ServerProblem                requests to `perdure serve`
        ├── Unauthenticated          PD901  no valid key
        ├── NotAllowed               PD902  the key may not do this
        ├── QuotaExceeded            PD903  the key has used up its quota
        ├── RequestInvalid           PD904  the request cannot be understood; also a ValueError
        ├── RequestTooLarge          PD905  the request exceeds a limit
        ├── RequestRepeated          PD906  the Idempotency-Key belongs to another request
        ├── ResourceNotFound         PD907  the server has no such resource
        ├── MethodRefused            PD908  the resource does not have that method
        ├── RequestTooSlow           PD909  the request or its answer took too long; also a TimeoutError
        ├── KeyNotFound              PD910  no key has that id
        ├── ListenRefused            PD911  the server would be open to strangers
        └── RequestUnfinished        PD912  an equal request is under way, or its answer was lost

    RunStopped                       not an Exception: passes through `except Exception` in user code
    ├── RunCancelled                 PD313  raised in the block of a run that is cancelled
    └── RunPaused                    PD314  raised in the block of a run that is paused

`NotDone` is not an error of Perdure: raise it in an effect to report that nothing happened. Nor is `ForeignError`, an
exception of a program in another language.
Warnings: `NotDurableWarning`, `ReplayDiffers`, `StateNotSaved`, `StoreMovedWarning`.
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
    undeclared: type | None = None
    """The data class that `Agent(types=[...])` would have to declare, if only that is missing."""


class CorruptValue(ValueProblem, ValueError):
    """The stored bytes are not a value that Perdure wrote."""

    code = "PD102"
    hint = "run `perdure verify` to find the damaged entry"


class UnknownType(ValueProblem, LookupError):
    """The stored value has a type that is not registered in this process."""

    code = "PD103"
    hint = "import the module that registers it with @perdure.stored, or register an upcaster"
    unknown: str = ""
    """The stored name of the class, if no class of the program has it."""


class ValueTooLarge(ValueProblem, ValueError):
    """The value exceeds a limit."""

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
    """The schema of the store differs from the one that Perdure created; nothing in it was run or changed."""

    code = "PD221"
    hint = "restore the store from a backup; drop triggers, views and indexes that you added yourself"


class StoreUrlInvalid(StoreUnavailable, ValueError):
    """The text is not the URL or path of a store."""

    code = "PD223"
    hint = "give a path, sqlite:///path or postgresql://user@host/database"


class StoreTypeInvalid(StoreUnavailable, TypeError):
    """A store must be given as a str or a path."""

    code = "PD224"
    hint = "give a str, a pathlib.Path, or None for the default"


class StoreReadOnly(StoreProblem, PermissionError):
    """The store cannot be written here; nothing was written."""

    code = "PD222"
    hint = "reading works; to write, copy the store to a writable folder and use the copy"


class StoreBusy(StoreProblem, TimeoutError):
    """Another process held the store's write lock for too long; nothing was written."""

    code = "PD202"
    hint = "find the process with `perdure doctor`, then try again"


class StorageFull(StoreProblem, OSError):
    """No space is left for the store; nothing was written, nothing acknowledged is lost."""

    code = "PD203"
    hint = "free some space and call again; reading still works"


class StoreFenced(StoreProblem, OSError):
    """After an I/O error it is unknown what reached the disk, so this process no longer writes."""

    code = "PD204"
    hint = "check the disk, then restart the program, or close and reopen the agent: the store recovers"


class StoreTooNew(StoreProblem):
    """The store was written by a later version of Perdure."""

    code = "PD205"
    hint = "upgrade with `pip install -U perdure`, or open the copy made before the migration"


class StoreMoved(StoreProblem):
    """The store was last used on another host or as another file."""

    code = "PD206"
    hint = "to continue with this copy, run `perdure adopt`"


class StoreForked(StoreProblem):
    """This process was created by os.fork(); connections and leases belong to its parent."""

    code = "PD207"
    hint = "create a new Agent in the child"


class StoreClosed(StoreProblem):
    """The store has been closed."""

    code = "PD208"
    hint = "create a new Agent to open it again; everything that was acknowledged is kept"


class JournalDamaged(StoreProblem):
    """A journal entry does not match the hash chain before it."""

    code = "PD209"
    hint = "run `perdure verify` to locate it, and restore from a backup"


class WrongStore(StoreProblem):
    """The anchor belongs to another store."""

    code = "PD210"
    hint = "name the anchor's store with --store, or compare with an anchor of this one"


class ArtifactDamaged(StoreProblem, ValueError):
    """A part of an artifact is missing or differs from what was saved."""

    code = "PD211"
    hint = "run `perdure verify` to see what else is damaged; restore from a backup, or save it again"

    def __init__(self, message: str = "", *, hint: str = "", name: str = "", version: int = 0, offset: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.version = version
        self.offset = offset
        """Where the unreadable part begins; everything before it is intact."""


class StoreRolledBack(StoreProblem):
    """The store has lost acknowledged entries. It is open for reading only."""

    code = "PD212"
    hint = (
        "restore the newer database or its log if you have them; to continue without the lost entries, run "
        "`perdure adopt`: effects that the lost entries may contain are then in doubt"
    )


class ArchiveDamaged(StoreProblem):
    """The archive has changed since it was written."""

    code = "PD220"
    hint = "restore the archive from a backup"


class RunProblem(PerdureError):
    """The run cannot do this."""


class RunBusy(RunProblem):
    """The run is open elsewhere and its holder is alive."""

    code = "PD301"
    hint = "wait for it to end, or stop that process: a dead holder is taken over at once"


class RunFinished(RunProblem):
    """The run is finished: it is replayed and can do nothing new."""

    code = "PD302"
    hint = "start a run with a new id; agent.runs.result(id) reads the result without replay"


class RunCompacted(RunFinished):
    """The run is finished and was compacted: its steps are no longer in the store."""

    code = "PD320"
    hint = "agent.runs.result(id) has its result; `perdure archive show` shows what it did"


class RunNotFound(RunProblem, LookupError):
    """There is no such run."""

    code = "PD303"
    hint = "`perdure runs` lists the runs of this store"


class RunDeleted(RunNotFound):
    """The run was deleted with its conversation, or by the rule that limits how long that is kept."""

    code = "PD317"
    hint = "start another run, or another turn, with a new id"


class RunWaiting(RunProblem):
    """The run waits for an answer."""

    code = "PD304"
    hint = "answer with `perdure answer RUN ...`, then start it again"


class InputChanged(RunProblem, ValueError):
    """The run was started with another input."""

    code = "PD305"
    hint = "leave input= out to resume it, or start a run with a new id"


class LeaseLost(RunProblem):
    """Another process has taken over this run; nothing was written."""

    code = "PD306"
    hint = "stop here: the new holder continues the run"


class Diverged(RunProblem):
    """The code asks for another effect, or writes another value, than recorded."""

    code = "PD307"
    hint = 'to run the new effect instead of the recorded one, use on_change="rerun"'


class NothingToAnswer(RunProblem, LookupError):
    """The run has no open question."""

    code = "PD308"
    hint = "`perdure show RUN` shows what it is doing"


class AlreadyAnswered(RunProblem):
    """The question has been answered already; the first answer counts."""

    code = "PD309"
    hint = "if the program is not running, start it again: it uses that answer, or asks again if it is invalid"


class ResultErased(RunProblem, LookupError):
    """The result of the run was erased."""

    code = "PD316"
    hint = "it contained text that was forgotten with everywhere=True; start a run with a new id to compute it again"


class RunNotFinished(RunProblem):
    """The run has not finished, so there is no result yet."""

    code = "PD310"
    hint = "open it again under the same id to continue it"


class BudgetExceeded(RunProblem):
    """The run has spent its budget, so it starts nothing new."""

    code = "PD311"
    hint = "finished work is kept: open the run again with a higher budget_usd= to continue"


class WaitTimeout(RunProblem, TimeoutError):
    """The wait ended without an answer or event."""

    code = "PD312"
    hint = "pass default= to continue without one"


class RunStopped(BaseException):
    """The run was cancelled or paused."""

    # Not an Exception: `except Exception` around a tool must not keep a cancelled run going. Outside the run's block
    # there is no such danger, so RunWasCancelled and RunWasPaused are Exceptions too.

    code: ClassVar[str] = ""
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str = "", reason: str = "", by: str = "", run: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])
        self.hint = hint or type(self).hint
        self.run = run
        """The id of the run."""
        self.reason = reason
        self.by = by
        """Who cancelled or paused it."""

    def __str__(self) -> str:
        text = BaseException.__str__(self)  # PerdureError.__str__, next in the MRO, would add the hint a second time
        return f"{text} ({self.hint})" if self.hint else text

    @property
    def message(self) -> str:
        """What happened, without the hint."""
        return BaseException.__str__(self)


class RunCancelled(RunStopped):
    """The run was cancelled for good."""

    code = "PD313"
    hint = "its work is kept: see `perdure show RUN`; to start over, use a new id"


class RunPaused(RunStopped):
    """The run is paused."""

    code = "PD314"
    hint = "call agent.runs.resume(id) or `perdure resume RUN`, then start it again"


class RunWasCancelled(RunCancelled, RunProblem):
    """The run was cancelled for good."""


class RunWasPaused(RunPaused, RunProblem):
    """The run is paused."""


class RunNotPaused(RunProblem):
    """The run is not paused, so there is nothing to resume."""

    code = "PD315"
    hint = "start its program again: the run continues under the same id"


class PointNotFound(RunProblem, LookupError):
    """The run has no such entry, step or checkpoint."""

    code = "PD330"


class RunExists(RunProblem, ValueError):
    """A run with that id already exists."""

    code = "PD331"


class TaskFailed(RunProblem):
    """The awaited run has failed."""

    code = "PD340"
    hint = "`perdure show RUN` shows what happened; agent.runs.retry(id) or `perdure retry RUN` queues it again"


class RunPoisoned(RunProblem):
    """Workers died repeatedly at the same place of this run."""

    code = "PD341"
    hint = "fix what kills the process; then agent.runs.retry(id) or `perdure retry RUN` queues the run again"


class NothingToRetry(RunProblem):
    """The run is not dead, so there is nothing to retry."""

    code = "PD342"
    hint = "`perdure queues` and `perdure show RUN` show its status"


class ContextTooSmall(RunProblem, ValueError):
    """The mandatory parts of the context exceed the token budget."""

    code = "PD350"
    hint = "pass a larger budget=, or unpin messages with run.messages.unpin(index)"


class RefNotFound(RunProblem, LookupError):
    """The pointer refers to no message."""

    code = "PD351"
    hint = "pointers look like perdure:RUN#17; shortened messages and context.dropped contain them"


class TurnUnfinished(RunProblem):
    """The last turn of the thread was killed or waits, so a new one cannot begin."""

    code = "PD360"
    hint = 'thread.turn() without input resumes it; on_unfinished="abandon" gives it up; @agent.turn finishes it first'


class NoTurn(RunProblem, LookupError):
    """The thread has no unfinished turn, and none is queued."""

    code = "PD361"
    hint = "give the user's message: thread.turn(text)"


class ForeignThread(RunProblem):
    """The thread belongs to another framework, which continues it."""

    code = "PD362"
    hint = "continue it in that framework, or use another thread id"


class AlreadyReplied(RunProblem):
    """The turn has its reply already."""

    code = "PD363"
    hint = "a turn has one reply; use turn.messages.append(...) for further messages"


class ReplayUnknown(RunProblem):
    """The server does not know which recorded effects this client has reached."""

    code = "PD370"
    hint = "repeat the request with `passed`, the entries of the effects that this client has reached"


class NothingCompacted(RunProblem):
    """The conversation is not compacted, so there is nothing to undo."""

    code = "PD352"


class CallProblem(PerdureError):
    """A step or an effect cannot be called like this."""


class NotDurable(CallProblem):
    """Called outside a run, so nothing would be recorded."""

    code = "PD401"
    hint = "call it inside `with agent.run(id):`; in a thread, use run.executor() or run.bind(fn)"


class EffectInsideStep(CallProblem):
    """An effect cannot run inside a step or another effect, which may be repeated as a whole."""

    code = "PD402"
    hint = "call the effect directly from the run, before or after the step"


class WrongAgent(CallProblem):
    """A step of one agent was called in a run of another agent."""

    code = "PD403"
    hint = "call it in a run of its own agent, or declare it with the agent of this run"


class InDoubt(CallProblem):
    """The outcome of the effect is unknown."""

    code = "PD404"
    hint = "find out whether it happened, then `perdure answer RUN --done RESULT`, `--retry` or `--fail`"


class StepFailed(CallProblem):
    """The step failed with an exception whose type is not known here."""

    code = "PD405"
    hint = "import its module, or list the type in raises=(...) of the step, to get the original exception back"

    def __init__(self, message: str = "", *, hint: str = "", type_name: str = "", args: Any = ()) -> None:
        super().__init__(message, hint=hint)
        self.type_name = type_name
        self.original_args = args


class StepTimeout(CallProblem, TimeoutError):
    """The body took longer than its timeout."""

    code = "PD406"


class Abandoned(CallProblem):
    """This body has timed out or its run has ended, so it can no longer write."""

    code = "PD407"


class VersionConflict(CallProblem):
    """Another writer has changed the key; nothing was written."""

    code = "PD408"
    hint = "read the key again and retry; `update` and `incr` never conflict"

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
        """The version in `if_version`; 0 stands for a key that does not exist."""
        self.found = found
        """The version in the store."""
        self.yours = yours
        """The value that was not written."""
        self.theirs = theirs
        """The value in the store."""


class HistoryCompacted(CallProblem, LookupError):
    """The state of that time is no longer in the store."""

    code = "PD420"
    hint = "`perdure gc --compact-before` moved older changes to its archives"


class EventsCompacted(CallProblem, LookupError):
    """The requested events were compacted and are in archives."""

    code = "PD421"
    hint = "`perdure gc --events-before` archived them; `perdure archive show` reads archives"


class CheckpointNotFound(CallProblem, LookupError):
    """There is no checkpoint of that name."""

    code = "PD409"
    hint = "`perdure checkpoints` lists the checkpoints of this store"


class ThreadNotFound(CallProblem, LookupError):
    """There is no thread with that id, or it has no such checkpoint."""

    code = "PD413"
    hint = "`perdure threads` lists the threads of this store"


class ThreadConflict(CallProblem):
    """Another writer has continued the thread from the same checkpoint; nothing was written."""

    code = "PD414"
    hint = "read the thread again and continue from its newest checkpoint; on_conflict='fork' lets both continue"


class ThreadDeleted(CallProblem):
    """The thread was deleted while it was in use; nothing was written."""

    code = "PD415"
    hint = "start again without a checkpoint id to begin the thread anew"


class NotAwaited(CallProblem, TypeError):
    """A synchronous run cannot await the coroutine that a function returned; it was closed and did nothing."""

    code = "PD416"
    hint = "use AsyncAgent, which awaits it, or return the value itself"


class UnknownAttribute(CallProblem, AttributeError):
    """There is no attribute of that name; nothing was done."""

    code = "PD417"


class WrongValue(CallProblem, ValueError):
    """An argument has a value that cannot be used; nothing was done."""

    code = "PD418"


class WrongType(CallProblem, TypeError):
    """An argument has a type that cannot be used; nothing was done."""

    code = "PD419"


class ExtraMissing(CallProblem, ImportError):
    """A package that this part of Perdure needs is not installed."""

    code = "PD422"


class ConfigurationBroken(CallProblem, ValueError):
    """A configuration file cannot be read, or not be edited safely."""

    code = "PD423"


class MemoryNotFound(CallProblem, LookupError):
    """There is no memory with that id, or it was forgotten."""

    code = "PD430"
    hint = "`perdure memory list` lists memories; a forgotten memory cannot be restored"


class BadEmbedder(CallProblem, ValueError):
    """The object is not an embedder, or its results are not vectors; nothing was written."""

    code = "PD431"
    hint = "an embedder has an id, dims, and embed(texts), which returns a row of dims numbers for each text"


class ArtifactNotFound(CallProblem, LookupError):
    """There is no artifact of that name."""

    code = "PD410"
    hint = "`perdure artifacts ls` lists the artifacts of this store"


class TaskNotFound(CallProblem, LookupError):
    """This agent declares no task of that name."""

    code = "PD412"


class WriteInsideUpdate(CallProblem):
    """The function given to `update` runs inside the commit, so it cannot write."""

    code = "PD411"
    hint = "return the new value and do other writes before or after, or use agent.state.transaction()"


class AgentProblem(PerdureError):
    """The agent cannot do this here."""


class AgentMoved(AgentProblem):
    """The agent has moved from this store to another one."""

    code = "PD801"
    hint = "continue it there; if nobody has imported the file yet: `perdure import FILE --store URL`"


class AgentRetired(AgentProblem):
    """The agent is retired and can no longer write."""

    code = "PD802"
    hint = "its data can still be read; agent.export makes a copy that can continue"


class AgentExists(AgentProblem):
    """The store already has an agent of that name."""

    code = "PD803"
    hint = "import it under another name: `perdure import FILE --name NAME`, or name= in Python"


class AgentNotFound(AgentProblem, LookupError):
    """The store has no agent of that name."""

    code = "PD804"
    hint = "`perdure agents` lists the agents of this store"


class ExportDamaged(AgentProblem):
    """The export file has changed since it was written; nothing was imported."""

    code = "PD805"
    hint = "use another copy of the file, or export the agent again"


class WrongPassphrase(AgentProblem):
    """The passphrase does not open the private key in the file; nothing was imported."""

    code = "PD806"


class ExportUnsigned(AgentProblem):
    """The file is not signed by its agent, so anybody may have written it; nothing was imported."""

    code = "PD807"
    hint = (
        "export the agent on the machine that has its key, which signs the file; "
        "if you know who wrote it: accept_unsigned=True, or `perdure import FILE --accept-unsigned`"
    )


class ExportFolderNotFound(AgentProblem, FileNotFoundError):
    """The folder for the export file does not exist; nothing was written."""

    code = "PD808"
    hint = "create the folder first: perdure creates only the file"


class PlaybookProblem(PerdureError):
    """The playbook or one of its steps cannot do this."""


class PlaybookNotFound(PlaybookProblem, LookupError):
    """There is no playbook of that name."""

    code = "PD701"


class PlaybookFailed(PlaybookProblem):
    """Every tier was tried, and `verify` refused every answer."""

    code = "PD702"
    hint = "the attempts are recorded: correct the playbook or verify, and start another run"


class WorkflowProblem(PerdureError):
    """The workflow or one of its steps cannot do this."""


class WorkflowNotFound(WorkflowProblem, LookupError):
    """There is no workflow or step of that name."""

    code = "PD501"
    hint = "`perdure workflows` lists the workflows of this store"


class WorkflowInvalid(WorkflowProblem, ValueError):
    """The steps do not form a valid workflow."""

    code = "PD502"


class WorkflowChanged(WorkflowProblem):
    """The newest version of the workflow has changed this step."""

    code = "PD503"
    hint = "get the workflow again and retry"


class StepClaimed(WorkflowProblem):
    """Another live process has claimed this step."""

    code = "PD504"
    hint = "take another of wf.ready_steps(), or wait; the step of a dead process is free at once"


class StepNotReady(WorkflowProblem):
    """The step cannot be started now."""

    code = "PD505"


class UnknownAction(WorkflowProblem, LookupError):
    """No action is registered under that name."""

    code = "PD506"


class WorkflowBlocked(WorkflowProblem):
    """None of the remaining steps can run now."""

    code = "PD507"


class WorkspaceProblem(PerdureError):
    """The workspace or one of its files cannot do this."""


class WorkspaceNotFound(WorkspaceProblem, LookupError):
    """There is no workspace here."""

    code = "PD601"
    hint = "create one with agent.workspace(path) or `perdure workspace init PATH`"


class WorkspaceReadOnly(WorkspaceProblem, OSError):
    """The folder of the workspace cannot be written. The journal has everything; no file was changed."""

    code = "PD603"
    hint = "make the folder writable for this user, or choose another: agent.workspace(PATH)"


class PathRefused(WorkspaceProblem, ValueError):
    """The path is not a file of the workspace."""

    code = "PD602"


class ServerProblem(PerdureError):
    """The server refuses the request."""


class Unauthenticated(ServerProblem):
    """The request has no valid key."""

    code = "PD901"
    hint = "send `Authorization: Bearer pdk_...`; `perdure keys create NAME` makes a key"


class NotAllowed(ServerProblem):
    """The key may not do this."""

    code = "PD902"


class QuotaExceeded(ServerProblem):
    """The key has used up its quota."""

    code = "PD903"
    retry_after: float = 1.0
    """Seconds after which the request can succeed."""


class RequestInvalid(ServerProblem, ValueError):
    """The request cannot be understood; nothing was changed."""

    code = "PD904"
    hint = "GET /v1/openapi.json describes every request"


class RequestTooLarge(ServerProblem):
    """The request exceeds a limit; nothing was changed."""

    code = "PD905"


class RequestRepeated(ServerProblem):
    """The Idempotency-Key was used for another request; nothing was changed."""

    code = "PD906"
    hint = "send a new Idempotency-Key with every new request, and the same one only with an equal request"


class RequestUnfinished(ServerProblem):
    """A request with this Idempotency-Key is under way."""

    code = "PD912"


class ResourceNotFound(ServerProblem, LookupError):
    """The server has no such resource."""

    code = "PD907"
    hint = "GET /v1/openapi.json lists every path"


class MethodRefused(ServerProblem):
    """The resource does not have that method."""

    code = "PD908"


class RequestTooSlow(ServerProblem, TimeoutError):
    """The request or its answer took too long."""

    code = "PD909"


class KeyNotFound(ServerProblem, LookupError):
    """There is no key with that id."""

    code = "PD910"
    hint = "`perdure keys list` shows all keys"


class ListenRefused(ServerProblem):
    """The server would be open to strangers."""

    code = "PD911"


class NotDone(Exception):
    """Raise it in an effect, or return it from `check`, to report that nothing happened."""


class ForeignError(Exception):
    """An exception of a program in another language; `type_name` is its class there."""

    def __init__(self, message: str = "", *, type_name: str = "Error") -> None:
        super().__init__(message)
        self.type_name = type_name


class NotDurableWarning(UserWarning):
    """A call looks durable but is not."""


class ReplayDiffers(UserWarning):
    """Replayed code reports another event, progress or usage than recorded; the recorded one stays."""


class StateNotSaved(UserWarning):
    """A value of `run.state` or `thread.state` was changed in place, which changes a copy and is not saved."""


class StoreMovedWarning(UserWarning):
    """The store was last used on another host or as another file."""
