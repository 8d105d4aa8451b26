// Package bench measures what users wait for, side by side with what they would use instead, in one run on one machine.
//
//   - Perdure is measured through a real daemon and the Go client, as a user feels it.
//   - stock is the command line of the very engine version that Perdure links, built from the pinned module, on the same root file
//     system: the same base, an overlay above it, the host's /usr. It gets no network and no cgroup, which is in its favour.
//   - copy is what a fork costs whoever copies the files: cp -a of the writable layer.
//
// The variants of one measure alternate, repetition by repetition, so that a busy moment of the machine meets both. Medians are
// compared. Each figure names its unit and how many samples it has; results/ keeps the last run as JSON and as a table, with the
// machine described. Absolute times of one machine say little about another: compare ratios.
//
// Run it as root with `make bench`, or the quick form with `go test ./test/bench -run '^$' -bench . -benchtime 1x -short`, which
// writes no results. Set PERDURE_BENCH_DIR to keep the data somewhere else than in the directory for temporary files.
package bench
