// Package sandboxtest is the conformance suite of sandbox.Driver: a driver that passes Run keeps the promises of package sandbox.
//
// A driver's own test is ten lines: it says how to make the driver, and calls Run. Tests of what a driver does not claim in its
// Capabilities are skipped, naming the capability. After every test the suite looks for what was left behind.
//
// Tests are named after the lines of the project's list of faults seen in the field (C1, S4, X3, …).
package sandboxtest
