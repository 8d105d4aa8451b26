// Package process is the driver without isolation: the guest and its commands are ordinary processes of this machine, with the
// rights of whoever started the daemon.
//
// It exists for machines where namespaces are forbidden, and to keep the driver interface honest. It must be asked for by name, and
// its Capabilities say loudly what is missing: no isolation, no memory in checkpoints, no network gateway.
//
// # Guarantees
//
//   - It needs neither root nor namespaces.
//   - Files are materialised in the upper directory, which is the home and the working directory of every command.
//   - Whatever a command starts is found again and killed by Destroy, also after it left its process group: the guest is a subreaper,
//     and every descendant of it is walked.
//   - Restore always fails with memory_unsupported, before it starts anything.
package process
