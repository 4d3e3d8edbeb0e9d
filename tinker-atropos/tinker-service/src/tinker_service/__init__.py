"""A service that speaks the Tinker API (SDK 0.38) on one machine: LoRA training and sampling of one base model.

What a client can rely on:

* Checkpoints, and the list of training runs, are on disk and survive a kill at any moment. Models in training, samplers
  and sessions are in memory: after a restart the SDK gets NotFoundError (a request in progress: RetryableException)
  that says to create a training client from the last saved state. From there training continues bit for bit.
* One thread owns the model and runs requests in order of arrival; waiting sample requests of one sampler run as one
  batch. A training request therefore delays sampling: on one processor, running both at once would not be faster.
* The same requests in the same order, on the same number of threads, produce bitwise identical weights. A sample
  with a seed does not depend on what else is in its batch.
* Logprobs of samples are those of the sampled distribution (after temperature, top_k, top_p; 0 for a greedy token).
  Logprobs of prompts, and what a loss computes, are the model's own (temperature 1).
* A model's requests are numbered by the SDK: a repeat gets the result of the first, and is never run again.
* `/healthz` and `/metrics` (Prometheus) need no key; files of external weights have signed URLs.
* Samples of a client with `record_stability_info` are kept in memory for a day, for `stable_reinforce`
  (`model/losses.py` says what ours computes: what Tinker's does is not public).

Not supported, each refused with a message: `kind="inflight"` samplers, images and audio, publishing and copying of
checkpoints.
"""
