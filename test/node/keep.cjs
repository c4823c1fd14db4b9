// dynalite throws away its whole process when a request to it is aborted, which tests that cut connections do all the time.
process.on('uncaughtException', (err) => {
  if (err.code === 'ECONNRESET') return
  console.error(err)
  process.exit(1)
})
