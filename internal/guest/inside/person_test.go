package inside

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/guest/wire"
)

func TestLookup(t *testing.T) {
	split := func(text string) (out [][]string) {
		for line := range strings.Lines(text) {
			out = append(out, strings.Split(strings.TrimSpace(line), ":"))
		}
		return out
	}
	users := split("root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/zsh\nhomeless:x:7:8:::\nbroken:x:a:b::/:\n42:x:9:9::/odd:/bin/sh\n")
	groups := split("root:x:0:\nextra:x:2000:root,app\nmore:x:2001:app\nbad:x:y:\n")
	for spec, want := range map[string]person{
		"app":         {uid: 1000, gid: 1001, groups: []uint32{2000, 2001}, name: "app", home: "/home/app", shell: "/bin/zsh"},
		"1000":        {uid: 1000, gid: 1001, groups: []uint32{2000, 2001}, name: "app", home: "/home/app", shell: "/bin/zsh"},
		"app:extra":   {uid: 1000, gid: 2000, name: "app", home: "/home/app", shell: "/bin/zsh"},
		"app:55":      {uid: 1000, gid: 55, name: "app", home: "/home/app", shell: "/bin/zsh"},
		"4000":        {uid: 4000, name: "4000", home: "/", shell: "/bin/sh"},
		"4000:more":   {uid: 4000, gid: 2001, name: "4000", home: "/", shell: "/bin/sh"},
		"homeless":    {uid: 7, gid: 8, name: "homeless", home: "/", shell: "/bin/sh"},
		"root":        {groups: []uint32{2000}, name: "root", home: "/root", shell: "/bin/sh"},
		"42":          {uid: 9, gid: 9, name: "42", home: "/odd", shell: "/bin/sh"}, // a name comes before a number
		"2147483647:": {},
	} {
		got, err := lookup(spec, users, groups)
		if spec == "2147483647:" {
			if err == nil {
				t.Error("an empty group is taken")
			}
			continue
		}
		if err != nil || got.uid != want.uid || got.gid != want.gid || got.name != want.name || got.home != want.home || got.shell != want.shell || !slices.Equal(got.groups, want.groups) {
			t.Errorf("%s is %+v, want %+v (%v)", spec, got, want, err)
		}
	}
	for spec, code := range map[string]string{
		"nobody": "user_not_found", "app:nobody": "user_not_found", "broken": "user_invalid", "app:bad": "user_invalid", "-1": "user_not_found", "4294967296": "user_not_found",
	} {
		var e *wire.Error
		if _, err := lookup(spec, users, groups); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestAccountsSkipsWhatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(file, []byte("# comment:x:1:1:a:b:c\n\n:x:1:1:a:b:c\nshort:x\nok:x:1:1:a:b:c\r\nlast:x:2:2:a:b:c"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := accounts(file, 7)
	if len(got) != 2 || got[0][0] != "ok" || got[0][6] != "c" || got[1][0] != "last" {
		t.Errorf("%q", got)
	}
	if accounts(file+".none", 7) != nil {
		t.Error("a file that is not there has lines")
	}
}
