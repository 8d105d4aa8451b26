package api

import "time"

// FileInfo describes a file in a workspace.
type FileInfo struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Type    string    `json:"type" enum:"file,directory,symlink,other"`
	Size    int64     `json:"size"`
	Mode    string    `json:"mode" doc:"Permission bits in octal, such as 0644."`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty" doc:"Of a symbolic link."`
}

// The values of FileInfo.Type.
const (
	TypeFile      = "file"
	TypeDirectory = "directory"
	TypeSymlink   = "symlink"
	TypeOther     = "other"
)

// Process is one process inside a workspace.
type Process struct {
	PID      int      `json:"pid"`
	PPID     int      `json:"ppid"`
	Args     []string `json:"args" nullable:"false"`
	State    string   `json:"state" doc:"One letter, as in /proc/PID/stat."`
	RSSBytes int64    `json:"rss_bytes"`
	ExecID   string   `json:"exec_id" doc:"The command that it belongs to; may be empty."`
}
