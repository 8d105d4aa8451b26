// Package script holds the tests of the command line: scripts in testdata that run the real binaries, on real daemons and real sandboxes.
//
// Each script has a data directory of its own, named by $D and PERDURE_DATA, whose daemon the first command starts. When a script ends, its sessions
// are removed through the command line, its daemon is stopped, and whatever either leaves behind fails the test: processes, mounts,
// files. Control groups are looked at by the drivers' conformance suite.
//
// The scripts in testdata/any need no sandbox or ask for the drivers that they need; those in testdata/both run once with each driver, named by
// $DRIVER; those in testdata/gvisor need what only that driver can do. On a machine that cannot run gVisor they are left out, which the test's
// log says.
package script
