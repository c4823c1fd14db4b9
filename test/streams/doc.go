// Package streams holds no code, only tests: what goes over streams, with real clients, real processes and connections that
// break. TestClients is the table of the README, client by feature; TestNoCutLosesAResponse and TestNoKillLosesAResponse are
// the race that Hydrant was made for.
//
// LONG=1 takes the tests to their full length: people who think for 45 seconds, cuts at every byte.
package streams
