// Package hop holds no code, only tests: sessions that go on while the processes that serve them are killed.
package hop
