package api

// CheckStorage asks for everything that is stored of checkpoints to be read and compared with its hashes.
type CheckStorage struct {
	Session string `json:"session,omitempty" maxLength:"128" doc:"A session's name or id; empty: all."`
	Repair  bool   `json:"repair,omitempty" doc:"Heal what is damaged where there is a second copy, and set damaged objects aside."`
}

// StorageReport is what was found.
type StorageReport struct {
	OK       bool           `json:"ok" doc:"Nothing is damaged, or not any more."`
	Sessions []VerifyReport `json:"sessions" nullable:"false" doc:"Logs, manifests, file layers and memory images, as verifying a session has them."`
	Packs    int            `json:"packs" doc:"Objects of the store of memory images that were read."`
	Chunks   int            `json:"chunks"`
	Bytes    int64          `json:"bytes" doc:"Of packs that were read."`
	Damaged  []DamagedPack  `json:"damaged" nullable:"false" doc:"Packs that are not as they were written."`
	Lost     []LostImage    `json:"lost" nullable:"false" doc:"Stored images that cannot be read whole."`
	Healed   []HealedImage  `json:"healed,omitempty" nullable:"false" doc:"What a repair has brought back."`
}

// DamagedPack is an object of the store that is not as it was written.
type DamagedPack struct {
	Object string `json:"object"`
	Chunks int    `json:"chunks" doc:"That cannot be read; -1 if that is unknown."`
	Reason string `json:"reason"`
}

// LostImage is a stored image that cannot be read whole.
type LostImage struct {
	CheckpointID string `json:"checkpoint_id"`
	File         string `json:"file,omitempty" doc:"Of the image; empty for its list of files."`
	Reason       string `json:"reason"`
}

// HealedImage is one that a repair has brought back.
type HealedImage struct {
	CheckpointID string `json:"checkpoint_id"`
	Copy         string `json:"copy" doc:"Which copy was healed: files, or store."`
}

// StorageUsage says what checkpoints take. Sizes are bytes.
type StorageUsage struct {
	Lineages []LineageUsage `json:"lineages" nullable:"false" doc:"A session and its forks, which share what they store."`
	Cached   int64          `json:"cached_bytes" doc:"Memory images as files, of all sessions, each file once."`
	Layers   int64          `json:"layers_bytes" doc:"File layers, each once."`
}

// LineageUsage is what the memory images of a session and its forks take.
type LineageUsage struct {
	Lineage     string   `json:"lineage" doc:"The id of the first session; it may have been deleted."`
	Sessions    []string `json:"sessions" nullable:"false" doc:"Names."`
	Checkpoints int      `json:"checkpoints"`
	Images      int      `json:"images" doc:"Memory images in the store."`
	Logical     int64    `json:"logical_bytes" doc:"What the memory images of all checkpoints would take as copies."`
	Content     int64    `json:"content_bytes" doc:"What the stored chunks hold, each once, before compression."`
	Stored      int64    `json:"stored_bytes" doc:"What they take, compressed and sealed."`
	Encrypted   bool     `json:"encrypted" doc:"They are sealed with a key that is a secret; false too where nothing is stored."`
}
