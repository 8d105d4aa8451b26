// Package demo is the command that shows one session whole, on a daemon of its own in a temporary directory.
//
// # What it promises
//
//   - All parts but the model are real: this build's own daemon, sandboxes, files and processes. The model is a script.
//   - Each claim that it prints was checked by it just before. One that does not hold ends it with exit code 1.
//   - It leaves nothing behind, also after a failure or ^C: no session, process, mount, network device or file. It looks, and says so.
//   - Where this machine cannot isolate it says what is missing, goes on with the process driver, and names what it leaves out.
package demo
