package gateway

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/egress"
)

// Namespace is an anonymous network namespace with a loopback device and, maybe, the TAP device eth0. It has no name anywhere on
// the host: it exists as long as this handle or a process inside does.
type Namespace struct {
	file *os.File
	tap  *os.File // nil without a device, and once TakeDevice was called
}

// NewNamespace makes a namespace; withDevice adds eth0, addressed and up.
func NewNamespace(withDevice bool) (*Namespace, error) {
	type result struct {
		ns  *Namespace
		err error
	}
	done := make(chan result)
	go func() {
		// The thread is never unlocked: it ends with this goroutine, since its namespace is not that of the process any more.
		runtime.LockOSThread()
		ns, err := makeNamespace(withDevice)
		done <- result{ns, err}
	}()
	r := <-done
	return r.ns, r.err
}

func makeNamespace(withDevice bool) (*Namespace, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("hold the network namespace: %w", err)
	}
	ns := &Namespace{file: file}
	if err := setUp("lo"); err != nil {
		ns.Close()
		return nil, err
	}
	if !withDevice {
		return ns, nil
	}
	if ns.tap, err = openTAP("eth0"); err == nil {
		err = address("eth0")
	}
	if err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// Path names the namespace for this process while it is open.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()) }

// TakeDevice hands over the TAP device, or nil if there is none.
func (n *Namespace) TakeDevice() *os.File {
	tap := n.tap
	n.tap = nil
	return tap
}

// Close lets go of the namespace and of a device that was not taken.
func (n *Namespace) Close() {
	n.file.Close()
	if n.tap != nil {
		n.tap.Close()
	}
}

// ProbeTAP says why no TAP device can be made here, or nil. It leaves nothing behind.
func ProbeTAP() error {
	ns, err := NewNamespace(true)
	if err != nil {
		return err
	}
	ns.Close()
	return nil
}

func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a TAP device: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap:"+name), nil
}

func address(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP:   egress.SandboxAddr.AsSlice(),
		Mask: net.CIDRMask(egress.Subnet.Bits(), 32),
	}}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("give %s its address: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: egress.GatewayAddr.AsSlice()}); err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	return nil
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}
