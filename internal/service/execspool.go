package service

import (
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/sandbox"
)

// openExecs returns the commands of a spool that are running.
func openExecs(dir string) ([]checkpoint.OpenExec, error) {
	s, err := spool.Look(dir, spool.Options{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var open []checkpoint.OpenExec
	for _, c := range s.Cut().Execs {
		if c.Status.State == sandbox.ExecRunning {
			open = append(open, checkpoint.OpenExec(c))
		}
	}
	return open, nil
}

// copySpool gives a fork the commands that were running at a cut, with the output that they had by then. If the session was deleted, so was its
// output: the guest sends again what it still holds, and the stream says where more is missing.
func copySpool(from, to string, open []checkpoint.OpenExec) error {
	s, err := spool.Look(from, spool.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	var cut spool.Cut
	for _, o := range open {
		cut.Execs = append(cut.Execs, spool.CutExec(o))
	}
	return s.CopyForFork(to, cut)
}
