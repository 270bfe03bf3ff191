// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// The tavern without an engine: a frame loop under Mono, with the thread pool as hook, collections in between,
// a save and restore in mid-sentence, and handles that nobody disposes.

using System;
using System.Threading;
using SuperSLM;

internal static class HeadlessTest
{
    private static int Main(string[] arguments)
    {
        Refuse();
        using (var tavern = new Tavern(arguments[0]))
        {
            tavern.Frame.UseThreadPool(4);
            int frames = 0, saved = 0, layers = 7;
            for (; tavern.Update(layers); ++frames)
            {
                if (frames % 16 == 0) GC.Collect();
                if (saved == 0 && tavern.Cast[0].Reply.Count > 5 && tavern.Cast[0].Layer > 0) saved = tavern.SaveAndRestore();
                if (tavern.Cast[0].Layer == 0) layers = 1 + frames % tavern.Model.Layers;
                Thread.Sleep(1);
            }
            foreach (Character character in tavern.Cast)
            {
                Console.WriteLine("prompt {0} {1}", string.Join(" ", tavern.WorldIds), string.Join(" ", character.Prompt));
                Console.WriteLine("reply {0}", string.Join(" ", character.Reply));
                Console.WriteLine("{0}: {1}", character.Name, character.Text);
            }
            Console.WriteLine("{0} frames, {1} bytes saved and restored in mid-sentence, {2} kernels", frames, saved,
                Model.KernelTier);
            Console.WriteLine("self-check: {0}", tavern.Model.Verify() ?? "verified");
        }
        Abandon(arguments[0]);
        GC.Collect();
        GC.WaitForPendingFinalizers(); // children may be finalised after their parents: the order must not matter
        Console.WriteLine("abandoned objects were released");
        return 0;
    }

    private static void Refuse()
    {
        string path = System.IO.Path.GetTempFileName();
        try
        {
            System.IO.File.WriteAllText(path, "not an artifact");
            new Model(path);
        }
        catch (SuperSLMException error)
        {
            Console.WriteLine("refused: {0}", error.Message);
        }
        finally
        {
            System.IO.File.Delete(path);
        }
    }

    private static void Abandon(string path)
    {
        var model = new Model(path);
        var pool = new PagePool(model, model.Pages(64));
        var sequence = new Sequence(pool, 64);
        sequence.Prefill(new[] { 1, 2, 3 }, new Workspace(model, 1, 8));
    }
}
