// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// Three characters in one world, for a frame loop: prompts are read by tasks, replies grow by layers.

using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;

namespace SuperSLM
{
    public sealed class Character
    {
        public string Name, Persona, Line, Text = "";
        public readonly List<int> Prompt = new List<int>(), Reply = new List<int>();
        public Sequence Sequence;
        public Detokenizer Stream;
        public Task Reading; // not null until its prompt has been read
        public int Layer;    // layers of the current token that are done
        public bool Done;
    }

    public sealed class Tavern : System.IDisposable
    {
        private const string World =
            "You are in the Drowned Lantern, a tavern on the quay of Saltreach. Outside a storm pulls at the "
            + "shutters, and the ferry will not sail tonight. The stove is hot, a lame gull named Commodore sleeps "
            + "on the counter, and at dusk the bell of the lighthouse rang by itself. "
            + "Nobody trusts the tax collector, who sits by the window with wet boots and a locked chest, "
            + "and nobody knows why the harbour master has not been seen since noon. The soup is thin, the stories are long, and so is the night. "
            + "Stay in your part and answer in one or two short sentences.";
        private const int WorldBudget = 256, Budget = 256, MaxReply = 40;

        public readonly Character[] Cast =
        {
            new Character { Name = "Marta", Persona = " You are Marta, who keeps the tavern.", Line = "What do you serve tonight?" },
            new Character { Name = "Oren", Persona = " You are Oren, an old sailor.", Line = "Have you ever seen a storm like this?" },
            new Character { Name = "Pip", Persona = " You are Pip, a young thief.", Line = "Who is the man by the window?" },
        };

        public readonly Model Model;
        public readonly Workspace Frame;
        public readonly int[] WorldIds;
        private readonly Workspace reading;
        private readonly PagePool pool;
        private readonly Prefix world;
        private readonly List<Character> batch = new List<Character>();
        private readonly List<Sequence> sequences = new List<Sequence>();
        private readonly int[] tokens;
        private Task lastReading = Task.FromResult(0);

        public Tavern(string path)
        {
            Model = new Model(path);
            Frame = new Workspace(Model, Cast.Length, 64);
            reading = new Workspace(Model, 1, 64);
            pool = new PagePool(Model, Model.Pages(WorldBudget) + 2 * (uint)Cast.Length * Model.Pages(Budget));
            WorldIds = Model.Chat(Role.System, Part.Prefix).Concat(Model.Tokenize(World)).ToArray();
            world = new Prefix(pool, WorldIds, WorldBudget, Frame);
            tokens = new int[Cast.Length];
            foreach (Character character in Cast)
            {
                character.Sequence = new Sequence(pool, Budget);
                character.Sequence.Adopt(world);
                character.Stream = new Detokenizer(Model);
                Ask(character);
            }
        }

        /// Lets a task read the character's line; one after the other, since they share a workspace.
        private void Ask(Character character)
        {
            character.Prompt.AddRange(Model.Tokenize(character.Persona));
            character.Prompt.AddRange(Model.Chat(Role.System, Part.Suffix));
            character.Prompt.AddRange(Model.Chat(Role.User, Part.Prefix));
            character.Prompt.AddRange(Model.Tokenize(character.Line));
            character.Prompt.AddRange(Model.Chat(Role.User, Part.Suffix));
            character.Prompt.AddRange(Model.Chat(Role.Assistant, Part.Prefix));
            int[] ids = character.Prompt.ToArray();
            lastReading = lastReading.ContinueWith(_ => character.Sequence.Prefill(ids, reading));
            character.Reading = lastReading;
        }

        /// A frame's slice: those who stand at the same layer go together. False when all have spoken.
        public bool Update(int layers)
        {
            foreach (Character character in Cast)
            {
                if (character.Reading == null || !character.Reading.IsCompleted) continue;
                character.Reading.Wait(); // throws what the task threw
                character.Reading = null;
            }
            int layer = Cast.Where(Speaks).Select(c => c.Layer).DefaultIfEmpty(0).Max();
            batch.Clear();
            batch.AddRange(Cast.Where(c => Speaks(c) && c.Layer == layer));
            sequences.Clear();
            sequences.AddRange(batch.Select(c => c.Sequence));
            if (batch.Count == 0) return Cast.Any(c => !c.Done);
            Model.Decode(sequences, layers, Frame, tokens);
            for (int i = 0; i < batch.Count; ++i) Hear(batch[i], tokens[i], layers);
            return true;
        }

        private static bool Speaks(Character character) { return character.Reading == null && !character.Done; }

        private void Hear(Character character, int token, int layers)
        {
            character.Layer = token < 0 ? character.Layer + layers : 0;
            if (token < 0) return;
            if (!Model.Stops(token))
            {
                character.Reply.Add(token);
                character.Text += character.Stream.Push(token);
            }
            character.Done = Model.Stops(token) || character.Reply.Count == MaxReply;
        }

        /// Saves everyone who speaks, lets go of them and restores them. Returns the bytes of the blobs.
        public int SaveAndRestore()
        {
            int bytes = 0;
            foreach (Character character in Cast.Where(Speaks))
            {
                byte[] blob = character.Sequence.Save();
                int? pending = character.Sequence.Pending;
                character.Sequence.Dispose();
                character.Sequence = new Sequence(pool, blob, world, pending);
                bytes += blob.Length;
            }
            return bytes;
        }

        public void Dispose()
        {
            foreach (Character character in Cast) character.Sequence.Dispose();
            world.Dispose();
            pool.Dispose();
            reading.Dispose();
            Frame.Dispose();
            Model.Dispose();
        }
    }
}
