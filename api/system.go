package api

// Health says that a daemon answers.
type Health struct {
	Status   string `json:"status" enum:"ok,starting,stopping"`
	Version  string `json:"version"`
	PID      int    `json:"pid"`
	DataDir  string `json:"data_dir"`
	Sessions int    `json:"sessions"`
	UptimeMS int64  `json:"uptime_ms"`
}

// BuildInfo is the version of a build.
type BuildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision" doc:"Of the source; may be empty."`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// DoctorReport says what this machine can do, and what it cannot and why.
type DoctorReport struct {
	OK      bool           `json:"ok" doc:"No check failed; warnings may be there."`
	Checks  []DoctorCheck  `json:"checks" nullable:"false"`
	Drivers []DriverReport `json:"drivers" nullable:"false"`
}

// DoctorCheck is one check.
type DoctorCheck struct {
	Name   string `json:"name"`
	Status string `json:"status" enum:"ok,warn,fail"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// DriverReport is what a driver can do on this machine.
type DriverReport struct {
	Name      string   `json:"name"`
	Available bool     `json:"available"`
	Memory    bool     `json:"memory" doc:"Checkpoints hold processes and RAM."`
	Network   bool     `json:"network"`
	Isolation string   `json:"isolation" doc:"kernel, namespace or none."`
	Version   string   `json:"version"`
	Missing   []string `json:"missing" nullable:"false"`
}
