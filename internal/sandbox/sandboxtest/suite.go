package sandboxtest

import (
	"testing"

	"perdure.dev/perdure/internal/sandbox"
)

// Make makes the driver under test. It is called once per test, as by a daemon that has just started.
type Make func(t testing.TB, bin Binaries) sandbox.Driver

// Run runs the whole suite against a driver.
func Run(t *testing.T, make Make) {
	bin := Build(t)
	if helper(t, make, bin) {
		return
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b *bench)
	}{
		{"X3_ExitCodesAreReal", exitCodes},
		{"ExecIsIdempotent", idempotent},
		{"ExecRunsInOneStep", oneStep},
		{"X6_OutputIsCompleteAndResumes", output},
		{"X1_TimeoutKillsGroup", timeout},
		{"X4_EndingOneExecLeavesTheOthers", independent},
		{"X7_ZombiesAreReaped", zombies},
		{"Files", fileAccess},
		{"NothingOfTheHostShows", secrets},
		{"KeysOfTheDaemonDoNotShow", daemonEnv},
		{"IdentityInside", identity},
		{"DirectoryImage", directoryImage},
		{"UnknownImage", unknownImage},
		{"PauseStopsTheClockOfProcesses", pause},
		{"NetworkRefusesAtOnce", network},
		{"MemoryLimit", memoryLimit},
		{"ProcessLimit", processLimit},
		{"X5_ForkBomb", forkBomb},
		{"LimitsAfterRestore", limitsAfterRestore},
		{"S5_CheckpointOfARunningSandbox", checkpointRunning},
		{"RestoreContinuesProcessesAndSockets", restoreContinues},
		{"S1_TenCycles", tenCycles},
		{"C2_CopiesDiffer", copiesDiffer},
		{"C1_ClockIsRightAfterRestore", clockAfterRestore},
		{"N2_CheckpointWithDataInFlight", dataInFlight},
		{"S4_FailedCheckpointChangesNothing", failedCheckpoint},
		{"S4_FailedRestoreChangesNothing", failedRestore},
		{"Rollback", rollback},
		{"S4_FailedRollbackLeavesTheOldOne", failedRollback},
		{"MemoryUnsupported", memoryUnsupported},
		{"S3_DaemonKilledSandboxRecovered", daemonKilled},
		{"S3_SandboxKilled", sandboxKilled},
		{"S3_ShimKilled", shimKilled},
		{"S3_RecoverOfNothing", recoverNothing},
		{"L2_StatusNamesProcesses", statusNamesProcesses},
		{"DestroyTwice", destroyTwice},
		{"RemovedStateDirectoryEndsTheShim", removedStateDir},
		{"StartCancelled", startCancelled},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newBench(t, make(t, bin))) })
	}
}
