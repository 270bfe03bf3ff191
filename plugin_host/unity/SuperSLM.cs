// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// SuperSLM for C#: copy this file into Assets/ and the native library into Assets/Plugins/.
//
// Every native object is a SafeHandle that keeps the objects it was made from alive, so neither Dispose nor the
// garbage collector can release them in a wrong order. Refusals are SuperSLMExceptions. Nothing here calls back
// into managed code but the job hook, and that is a static method, as IL2CPP needs it.

using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading.Tasks;

namespace SuperSLM
{
    public enum Status
    {
        Ok = 0, InvalidArgument = 1, BufferTooSmall = 2, MisalignedBuffer = 3, ArtifactRejected = 4,
        KvPoolExhausted = 14, ContextCapExceeded = 16, AllocationFailed = 25, KvBudgetExceeded = 29
    }

    public enum Role { System, User, Assistant }
    public enum Part { Prefix, Suffix, Opening }

    public sealed class SuperSLMException : Exception
    {
        public Status Status { get; }

        public SuperSLMException(Status status, string verb, string more = null)
            : base(verb + ": " + Native.StatusName(status) + (more == null ? "" : ": " + more))
        {
            Status = status;
        }
    }

    // IL2CPP recognises the attribute by its name, wherever it is declared.
    [AttributeUsage(AttributeTargets.Method)]
    public sealed class MonoPInvokeCallbackAttribute : Attribute
    {
        public MonoPInvokeCallbackAttribute(Type type) { }
    }

    // ---- The C ABI ----

    internal static class Native
    {
#if (UNITY_IOS || UNITY_WEBGL) && !UNITY_EDITOR
        private const string Library = "__Internal";
#else
        private const string Library = "superslm";
#endif
        internal const uint DraftVersion = 1;
        internal const uint MatVec = 0x2;
        private const CallingConvention C = CallingConvention.Cdecl;

        [StructLayout(LayoutKind.Sequential)]
        internal struct Config
        {
            public int MaxBatch, MaxChunk, MaxLayers;
            public uint Reserved;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct DetokState
        {
            public byte Pending0, Pending1, Pending2, PendingCount;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct DecodeParams
        {
            public int LayerBudget;
            public uint StructSize;
            public int Mode, AlphaQ15, AntiLmMaxOrder, TopK;
            public long QLn2, QB, QC;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct ParallelFor
        {
            public IntPtr Run, HostCtx;
            public int MaxTasks;
            public uint Reserved;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct ModelInfo
        {
            public uint StructSize;
            public int Layers, Hidden, Heads, KvHeads, HeadDim, Mlp, Vocab, Cap, WeightBits, HasTokenizer,
                TokenizerSize, SchemaCount, StopIdCount;
            [MarshalAs(UnmanagedType.ByValArray, SizeConst = 16)] public int[] StopIds;
            [MarshalAs(UnmanagedType.ByValArray, SizeConst = 32)] public byte[] FileDigest;
            [MarshalAs(UnmanagedType.ByValArray, SizeConst = 32)] public byte[] ModelDigest;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct SelfCheck
        {
            public uint StructSize;
            public int Verdict, Tokens, ExpectedTokens, Recorded, Computed;
        }

        [UnmanagedFunctionPointer(C)] internal delegate void TaskFn(IntPtr taskCtx, int index);
        [UnmanagedFunctionPointer(C)]
        internal delegate void RunFn(IntPtr hostCtx, int count, IntPtr task, IntPtr taskCtx);

        [DllImport(Library, CallingConvention = C)] internal static extern uint sslm_ext_version();
        [DllImport(Library, CallingConvention = C)] internal static extern IntPtr sslm_ext_status_name(Status status);
        [DllImport(Library, CallingConvention = C)] internal static extern IntPtr sslm_ext_kernel_tier();
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_ext_model_info(ModelHandle model, ref ModelInfo info);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_ext_model_check(Memory data, UIntPtr size, byte[] message, ref UIntPtr n);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_ext_self_check(ModelHandle model, IntPtr ws, ref SelfCheck result);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_ext_tokenize(ModelHandle model, byte[] utf8, UIntPtr length, uint flags,
            int[] ids, ref UIntPtr n);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_ext_chat_ids(ModelHandle model, Role role, Part part, int[] ids, ref UIntPtr n);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_model_map(Memory data, UIntPtr size, out IntPtr model);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_model_unmap(IntPtr model);
        [DllImport(Library, CallingConvention = C)]
        internal static extern UIntPtr sslm_workspace_size(ModelHandle model, ref Config config);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_workspace_create(ModelHandle model, ref Config config, Memory buffer,
            UIntPtr size, out IntPtr ws);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_workspace_destroy(IntPtr ws);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_workspace_set_parallel_for(WorkspaceHandle ws, ref ParallelFor hook);
        [DllImport(Library, CallingConvention = C)] internal static extern UIntPtr sslm_kv_page_size(ModelHandle model);
        [DllImport(Library, CallingConvention = C)]
        internal static extern UIntPtr sslm_kv_pages_for_budget(ModelHandle model, int budget);
        [DllImport(Library, CallingConvention = C)]
        internal static extern UIntPtr sslm_kv_page_pool_overhead_size(ModelHandle model, uint pages);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_kv_page_pool_create(ModelHandle model, Memory buffer, UIntPtr size, uint pages,
            out IntPtr pool);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_kv_pool_destroy(IntPtr pool);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_prefix_begin_budgeted(ModelHandle model, ref IntPtr pool, int budget, out IntPtr prefix);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_prefix_prefill(ModelHandle model, PrefixHandle prefix, IntPtr ids, int count,
            int chunk, int kind, WorkspaceHandle ws, out int consumed);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_prefix_freeze(PrefixHandle prefix);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_prefix_release(IntPtr prefix);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_seq_create_budgeted(ModelHandle model, ref IntPtr pool, int budget, out IntPtr seq);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_seq_restore_shared(ModelHandle model, ref IntPtr pool, byte[] blob, UIntPtr size,
            IntPtr prefix, out IntPtr seq, out uint sharedPages);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_seq_release(IntPtr seq);
        [DllImport(Library, CallingConvention = C)] internal static extern Status sslm_seq_reset(SequenceHandle seq);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_seq_adopt_prefix(SequenceHandle seq, PrefixHandle prefix);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_seq_save(SequenceHandle seq, byte[] blob, ref UIntPtr n);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_prefill(ModelHandle model, SequenceHandle seq, IntPtr ids, int count, int chunk,
            int kind, WorkspaceHandle ws, out int consumed);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_decode_step(ModelHandle model, IntPtr[] seqs, int n, ref DecodeParams parameters,
            WorkspaceHandle ws, int[] tokens);
        [DllImport(Library, CallingConvention = C)]
        internal static extern Status sslm_detokenize_stream(ModelHandle model, ref DetokState state, ref int token, int n,
            byte[] utf8, ref int length);

        internal static string StatusName(Status status)
        {
            return Marshal.PtrToStringAnsi(sslm_ext_status_name(status));
        }

        internal static void Check(Status status, string verb, string more = null)
        {
            if (status != Status.Ok) throw new SuperSLMException(status, verb, more);
        }

        internal static int[] Ids(string verb, IdQuery query)
        {
            UIntPtr n = UIntPtr.Zero;
            Status status = query(null, ref n);
            if (status == Status.Ok) return new int[0];
            if (status != Status.BufferTooSmall) Check(status, verb);
            var ids = new int[(int)n];
            Check(query(ids, ref n), verb);
            return ids;
        }

        internal delegate Status IdQuery(int[] ids, ref UIntPtr n);
    }

    // ---- Handles ----

    // A native object and its parents, which live at least as long.
    internal abstract class Handle : SafeHandle
    {
        private readonly SafeHandle[] parents;

        protected Handle(IntPtr value, params SafeHandle[] parents) : base(IntPtr.Zero, true)
        {
            this.parents = parents;
            bool added = false;
            foreach (SafeHandle parent in parents) parent.DangerousAddRef(ref added);
            SetHandle(value);
        }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }

        protected abstract void Release(IntPtr value);

        protected override bool ReleaseHandle()
        {
            Release(handle);
            foreach (SafeHandle parent in parents) parent.DangerousRelease();
            return true;
        }
    }

    // Memory to lend, 64-byte aligned.
    internal sealed class Memory : SafeHandle
    {
        private readonly IntPtr block;
        internal UIntPtr Size { get; }

        internal Memory(long size) : base(IntPtr.Zero, true)
        {
            block = Marshal.AllocHGlobal(new IntPtr(size + 64));
            SetHandle(new IntPtr((block.ToInt64() + 63) & ~63L));
            Size = new UIntPtr((ulong)size);
        }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }

        protected override bool ReleaseHandle()
        {
            Marshal.FreeHGlobal(block);
            return true;
        }

        internal static Memory Read(string path)
        {
            using (FileStream file = File.OpenRead(path))
            {
                var memory = new Memory(file.Length);
                var piece = new byte[1 << 20];
                long at = 0;
                for (int n; (n = file.Read(piece, 0, piece.Length)) > 0; at += n)
                    Marshal.Copy(piece, 0, new IntPtr(memory.handle.ToInt64() + at), n);
                return memory;
            }
        }
    }

    internal sealed class ModelHandle : Handle
    {
        internal ModelHandle(IntPtr value, Memory bytes) : base(value, bytes) { }
        protected override void Release(IntPtr value) { Native.sslm_model_unmap(value); }
    }

    internal sealed class WorkspaceHandle : Handle
    {
        internal WorkspaceHandle(IntPtr value, Memory buffer, ModelHandle model) : base(value, buffer, model) { }
        protected override void Release(IntPtr value) { Native.sslm_workspace_destroy(value); }
    }

    internal sealed class PoolHandle : Handle
    {
        internal PoolHandle(IntPtr value, Memory buffer, ModelHandle model) : base(value, buffer, model) { }
        protected override void Release(IntPtr value) { Native.sslm_kv_pool_destroy(value); }
    }

    internal sealed class PrefixHandle : Handle
    {
        internal PrefixHandle(IntPtr value, PoolHandle pool) : base(value, pool) { }
        protected override void Release(IntPtr value) { Native.sslm_prefix_release(value); }
    }

    internal sealed class SequenceHandle : Handle
    {
        internal SequenceHandle(IntPtr value, PoolHandle pool) : base(value, pool) { }
        protected override void Release(IntPtr value) { Native.sslm_seq_release(value); }
    }

    // ---- What a game uses ----

    /// A mapped artifact, immutable; any number of threads may use it.
    public sealed class Model : IDisposable
    {
        internal ModelHandle Handle { get; }
        public int Layers { get; }
        public int ContextCap { get; }
        private readonly HashSet<int> stopIds;

        /// Throws with the reason when the file is refused.
        public Model(string path)
        {
            if (Native.sslm_ext_version() != Native.DraftVersion)
                throw new NotSupportedException("SuperSLM.cs and the native library differ in their draft functions");
            Memory bytes = Memory.Read(path);
            IntPtr value;
            Status status = Native.sslm_model_map(bytes, bytes.Size, out value);
            if (status != Status.Ok) throw new SuperSLMException(status, "sslm_model_map", path + ": " + Why(bytes));
            Handle = new ModelHandle(value, bytes);
            bytes.Dispose(); // the handle keeps it
            var info = new Native.ModelInfo { StructSize = (uint)Marshal.SizeOf(typeof(Native.ModelInfo)) };
            Native.Check(Native.sslm_ext_model_info(Handle, ref info), "sslm_ext_model_info");
            Layers = info.Layers;
            ContextCap = info.Cap;
            stopIds = new HashSet<int>(new ArraySegment<int>(info.StopIds, 0, info.StopIdCount));
        }

        public void Dispose() { Handle.Dispose(); }

        public static string KernelTier { get { return Marshal.PtrToStringAnsi(Native.sslm_ext_kernel_tier()); } }

        public bool Stops(int id) { return stopIds.Contains(id); }

        /// Null when this machine computes what the converter's did, else the first difference.
        public string Verify()
        {
            var check = new Native.SelfCheck { StructSize = (uint)Marshal.SizeOf(typeof(Native.SelfCheck)) };
            Native.Check(Native.sslm_ext_self_check(Handle, IntPtr.Zero, ref check), "sslm_ext_self_check");
            if (check.Verdict == 0) return null;
            if (check.Verdict == 2) return "logits or K/V bytes differ behind equal tokens";
            return "token " + check.Tokens + " is " + check.Computed + ", recorded is " + check.Recorded;
        }

        /// Ids of text; nothing in it becomes a control token.
        public int[] Tokenize(string text)
        {
            byte[] utf8 = Encoding.UTF8.GetBytes(text);
            return Native.Ids("sslm_ext_tokenize", (int[] ids, ref UIntPtr n) =>
                Native.sslm_ext_tokenize(Handle, utf8, new UIntPtr((uint)utf8.Length), 0, ids, ref n));
        }

        /// Ids around a turn of a conversation.
        public int[] Chat(Role role, Part part)
        {
            return Native.Ids("sslm_ext_chat_ids", (int[] ids, ref UIntPtr n) =>
                Native.sslm_ext_chat_ids(Handle, role, part, ids, ref n));
        }

        /// Pages that a sequence or prefix of `budget` positions reserves.
        public uint Pages(int budget) { return (uint)Native.sslm_kv_pages_for_budget(Handle, budget); }

        /// One step of at most `layers` layers for each sequence; tokens[i] is an id, or negative while unfinished.
        public void Decode(IList<Sequence> sequences, int layers, Workspace workspace, int[] tokens)
        {
            var handles = new IntPtr[sequences.Count];
            for (int i = 0; i < handles.Length; ++i) handles[i] = sequences[i].Handle.DangerousGetHandle();
            var parameters = new Native.DecodeParams { LayerBudget = layers };
            Native.Check(Native.sslm_decode_step(Handle, handles, handles.Length, ref parameters, workspace.Handle, tokens),
                "sslm_decode_step");
            for (int i = 0; i < handles.Length; ++i)
            {
                if (tokens[i] >= 0) sequences[i].Pending = tokens[i];
            }
            GC.KeepAlive(sequences);
        }

        private static string Why(Memory bytes)
        {
            var message = new byte[256];
            var n = new UIntPtr((uint)message.Length);
            Native.sslm_ext_model_check(bytes, bytes.Size, message, ref n);
            return Encoding.UTF8.GetString(message, 0, Math.Min((int)n, message.Length - 1));
        }
    }

    /// Scratch for calls of up to `maxBatch` sequences or `maxChunk` prompt tokens. One call at a time.
    public sealed class Workspace : IDisposable
    {
        internal WorkspaceHandle Handle { get; }

        public Workspace(Model model, int maxBatch, int maxChunk)
        {
            var config = new Native.Config { MaxBatch = maxBatch, MaxChunk = maxChunk, MaxLayers = model.Layers };
            var buffer = new Memory((long)Native.sslm_workspace_size(model.Handle, ref config));
            IntPtr value;
            Native.Check(Native.sslm_workspace_create(model.Handle, ref config, buffer, buffer.Size, out value),
                "sslm_workspace_create");
            Handle = new WorkspaceHandle(value, buffer, model.Handle);
            buffer.Dispose();
        }

        public void Dispose() { Handle.Dispose(); }

        /// Lends the thread pool to the calls that use this workspace: up to `maxTasks` tasks at a time, 1..256.
        public void UseThreadPool(int maxTasks)
        {
            var hook = new Native.ParallelFor { Run = Jobs.Run, MaxTasks = maxTasks, Reserved = Native.MatVec };
            Native.Check(Native.sslm_workspace_set_parallel_for(Handle, ref hook), "sslm_workspace_set_parallel_for");
        }
    }

    // The hook: a static method, and a delegate that the collector never takes.
    internal static class Jobs
    {
        private static readonly Native.RunFn run = RunTasks;
        private static readonly Dictionary<IntPtr, Native.TaskFn> tasks = new Dictionary<IntPtr, Native.TaskFn>();

        internal static readonly IntPtr Run = Marshal.GetFunctionPointerForDelegate(run);

        [MonoPInvokeCallback(typeof(Native.RunFn))]
        private static void RunTasks(IntPtr hostCtx, int count, IntPtr task, IntPtr taskCtx)
        {
            Native.TaskFn call = Callable(task);
            Parallel.For(0, count, i => call(taskCtx, i));
        }

        // The library has few task functions; each is wrapped once.
        private static Native.TaskFn Callable(IntPtr task)
        {
            lock (tasks)
            {
                Native.TaskFn call;
                if (!tasks.TryGetValue(task, out call))
                {
                    call = (Native.TaskFn)Marshal.GetDelegateForFunctionPointer(task, typeof(Native.TaskFn));
                    tasks.Add(task, call);
                }
                return call;
            }
        }
    }

    /// K/V memory in pages.
    public sealed class PagePool : IDisposable
    {
        internal PoolHandle Handle { get; }
        internal Model Model { get; }

        public PagePool(Model model, uint pages)
        {
            Model = model;
            long size = (long)pages * (long)Native.sslm_kv_page_size(model.Handle)
                + (long)Native.sslm_kv_page_pool_overhead_size(model.Handle, pages);
            var buffer = new Memory(size);
            IntPtr value;
            Native.Check(Native.sslm_kv_page_pool_create(model.Handle, buffer, buffer.Size, pages, out value),
                "sslm_kv_page_pool_create");
            Handle = new PoolHandle(value, buffer, model.Handle);
            buffer.Dispose();
        }

        public void Dispose() { Handle.Dispose(); }
    }

    internal delegate Status PrefillCall(IntPtr ids, int count, int chunk, out int consumed);

    internal static class Prompt
    {
        private const int Chunk = 64; // prompt tokens per native call

        internal static void Read(string verb, int[] ids, PrefillCall call)
        {
            GCHandle pin = GCHandle.Alloc(ids, GCHandleType.Pinned);
            try
            {
                for (int done = 0, consumed; done < ids.Length; done += consumed)
                {
                    var from = new IntPtr(pin.AddrOfPinnedObject().ToInt64() + 4L * done);
                    Native.Check(call(from, ids.Length - done, Chunk, out consumed), verb);
                }
            }
            finally
            {
                pin.Free();
            }
        }
    }

    /// A prompt read once and frozen; sequences adopt it and share its pages.
    public sealed class Prefix : IDisposable
    {
        internal PrefixHandle Handle { get; }

        public Prefix(PagePool pool, int[] ids, int budget, Workspace workspace)
        {
            IntPtr at = pool.Handle.DangerousGetHandle(), value;
            Native.Check(Native.sslm_prefix_begin_budgeted(pool.Model.Handle, ref at, budget, out value),
                "sslm_prefix_begin_budgeted");
            Handle = new PrefixHandle(value, pool.Handle);
            Prompt.Read("sslm_prefix_prefill", ids, (IntPtr from, int n, int chunk, out int consumed) =>
                Native.sslm_prefix_prefill(pool.Model.Handle, Handle, from, n, chunk, 0, workspace.Handle, out consumed));
            Native.Check(Native.sslm_prefix_freeze(Handle), "sslm_prefix_freeze");
        }

        public void Dispose() { Handle.Dispose(); }
    }

    /// One conversation. Use it from one thread at a time.
    public sealed class Sequence : IDisposable
    {
        internal SequenceHandle Handle { get; }
        private readonly Model model;

        /// The token decoded last: not in the context yet. Put it in front of the next Prefill to keep it.
        public int? Pending { get; internal set; }

        public Sequence(PagePool pool, int budget)
        {
            model = pool.Model;
            IntPtr at = pool.Handle.DangerousGetHandle(), value;
            Native.Check(Native.sslm_seq_create_budgeted(model.Handle, ref at, budget, out value),
                "sslm_seq_create_budgeted");
            Handle = new SequenceHandle(value, pool.Handle);
        }

        /// A saved sequence, sharing the pages of the prefix it had adopted.
        public Sequence(PagePool pool, byte[] blob, Prefix prefix, int? pending)
        {
            model = pool.Model;
            Pending = pending;
            IntPtr at = pool.Handle.DangerousGetHandle(), value;
            uint shared;
            IntPtr from = prefix == null ? IntPtr.Zero : prefix.Handle.DangerousGetHandle();
            Native.Check(Native.sslm_seq_restore_shared(model.Handle, ref at, blob, new UIntPtr((uint)blob.Length), from,
                out value, out shared), "sslm_seq_restore_shared");
            GC.KeepAlive(prefix);
            Handle = new SequenceHandle(value, pool.Handle);
        }

        public void Dispose() { Handle.Dispose(); }

        /// Empties it and starts from a frozen prefix.
        public void Adopt(Prefix prefix)
        {
            Native.Check(Native.sslm_seq_reset(Handle), "sslm_seq_reset");
            Native.Check(Native.sslm_seq_adopt_prefix(Handle, prefix.Handle), "sslm_seq_adopt_prefix");
            Pending = null;
        }

        /// Appends ids. A prompt token costs a whole pass over the weights: do it in a Task.
        public void Prefill(int[] ids, Workspace workspace)
        {
            Prompt.Read("sslm_prefill", ids, (IntPtr from, int n, int chunk, out int consumed) =>
                Native.sslm_prefill(model.Handle, Handle, from, n, chunk, 0, workspace.Handle, out consumed));
            Pending = null;
        }

        /// The sequence in any state, mid-token included. Keep Pending beside it.
        public byte[] Save()
        {
            UIntPtr n = UIntPtr.Zero;
            Native.sslm_seq_save(Handle, null, ref n);
            var blob = new byte[(int)n];
            Native.Check(Native.sslm_seq_save(Handle, blob, ref n), "sslm_seq_save");
            return blob;
        }
    }

    /// Ids to text, never splitting a character.
    public sealed class Detokenizer
    {
        private readonly Model model;
        private readonly byte[] piece = new byte[512];
        private Native.DetokState state;

        public Detokenizer(Model model) { this.model = model; }

        public string Push(int id)
        {
            int length = piece.Length;
            Native.Check(Native.sslm_detokenize_stream(model.Handle, ref state, ref id, 1, piece, ref length),
                "sslm_detokenize_stream");
            return Encoding.UTF8.GetString(piece, 0, length);
        }
    }
}
