// Package checkpoint stores consistent cuts of a session: a place in its log, its files, and its processes with their RAM.
//
// A checkpoint is a directory:
//
//	manifest.json   what belongs to it and how it hashes; written last, so that a directory without one is no checkpoint
//	memory/         the driver's memory image, if there is one
//	synced          is there once everything is on stable storage
//	seal.json       hashes of its file layers; written once everything is on stable storage ("durable")
//
// Files are not in it: it names layers, which checkpoints and forks share.
//
// # Steps
//
//	Begin ─► the driver saves memory into MemoryDir while the caller cuts files and log ─► Commit (warm) ─► Seal (durable)
//
// Nothing before Commit is visible; Drop, or Sweep after a crash, removes it.
//
// # Guarantees
//
//   - Open returns a checkpoint only after its manifest and every byte of its memory image have been checked, this time or, if the files
//     have not been touched since, by this process before. Otherwise it fails with checkpoint_corrupt.
//   - Seal never calls durable what a machine that went down in between may have torn.
//   - Verify checks every byte of manifest, memory and layers.
//
// Hashes are BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs), 256 bits in lower-case hex.
package checkpoint
